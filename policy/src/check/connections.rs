//! Rules about connections: of APIs that have no requests, and only of those.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::condition::Terms;
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{Draft, DraftRoute, DraftRule};
use crate::route::RouteLine;
use crate::{RuleId, Traffic};

/// Gives rules about connections the one line that stands for them, and refuses what cannot be said of connections.
pub(super) fn rules(draft: &mut Draft) {
    let traffic: BTreeMap<Arc<str>, Traffic> =
        draft.apis.iter().map(|api| (Arc::clone(&api.name.value), api.view.traffic)).collect();
    let mut found = Vec::new();
    for rule in draft.grants.iter_mut().flat_map(|grant| &mut grant.rules) {
        match traffic.get(&rule.api.value) {
            Some(traffic) if traffic.is_passed_on() => connection(rule, &mut found),
            // Reported as an unknown reference, or its definition is broken.
            None => {}
            Some(_) if rule.routes.is_empty() && !rule.lost_routes => {
                let help = "add `routes = [\"GET /v1/items/{int}\"]`";
                let missing = Diagnostic::error(Code::MissingField, "a rule has no `routes`");
                found.push(missing.at(rule.place.clone()).help(help));
            }
            Some(_) => {}
        }
    }
    draft.diagnostics.extend(found);
}

fn connection(rule: &mut DraftRule, found: &mut Vec<Diagnostic>) {
    let api = &rule.api.value;
    let mut refuse = |what: String, help: &str| {
        found.push(Diagnostic::error(Code::BadConnection, what).at(rule.place.clone()).help(help));
    };
    if !rule.routes.is_empty() || rule.lost_routes {
        let help = "leave `routes` out: the rule is about every connection to it, and nobody sees requests";
        refuse(format!("`routes` for API `{api}`, whose connections are passed on unread"), help);
    }
    if rule.websocket {
        let help = "leave `websocket` out: nobody sees what a connection carries";
        refuse(format!("`websocket` for API `{api}`, whose connections are passed on unread"), help);
    }
    if rule.terms.as_ref().is_some_and(|terms| speaks_of_requests(terms)) {
        let help =
            "beside `api`, a rule about connections has `approve` and `calls`, the number of connections";
        refuse(
            format!("a condition on requests for API `{api}`, whose connections are passed on unread"),
            help,
        );
    }
    let id = RuleId(Arc::clone(&rule.id));
    rule.routes = vec![DraftRoute { id, line: RouteLine::connection(), place: rule.api.place.clone() }];
}

fn speaks_of_requests(terms: &Terms) -> bool {
    // Whoever adds a condition decides here whether connections can have it.
    let Terms {
        headers,
        content_type,
        body,
        grpc,
        response_content_type,
        inspect_bytes,
        calls: _,
        approve: _,
    } = terms;
    !headers.is_empty()
        || !content_type.is_empty()
        || !body.is_empty()
        || grpc.is_some()
        || !response_content_type.is_empty()
        || inspect_bytes.is_some()
}
