//! What was seen as a policy file.

use super::{Learnt, Place, Seen};
use crate::diagnostic::Code;
use crate::format;
use crate::import::text::{comment, name};
use crate::import::write::{Sketch, SketchApi, SketchGrant, SketchRoute, SketchRule};
use crate::import::{ImportError, Imported, Kind, Report};
use crate::traffic::Traffic;
use crate::{Policy, SourceFile};

/// Which routes a person has to approve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approvals {
    /// Those that somebody approved when they were seen.
    AsSeen,
    /// Every one of an origin where somebody approved one: routes that meet must agree on it.
    WholeOrigin,
}

/// Writes the file and checks it.
pub(super) fn write(learnt: &Learnt, beside: Option<&Policy>) -> Result<Imported, ImportError> {
    let made = match once(learnt, beside, Approvals::AsSeen) {
        Err(ImportError::Refused(problems))
            if problems.iter().any(|problem| problem.code == Code::AmbiguousRule) =>
        {
            once(learnt, beside, Approvals::WholeOrigin)
        }
        made => made,
    }?;
    // In the one layout, so that what is put into a folder is in it already.
    let file = SourceFile::new("learnt.toml", made.policy);
    let policy = format::format(&file).unwrap_or(file.text);
    Ok(Imported { policy, report: made.report })
}

fn once(learnt: &Learnt, beside: Option<&Policy>, approvals: Approvals) -> Result<Imported, ImportError> {
    let mut report = learnt.report.clone();
    let mut sketch =
        Sketch { heading: heading(learnt), beside: learnt.options.beside.clone(), ..Sketch::default() };
    let mut rules = Vec::new();
    for (place, kinds) in &learnt.places {
        let api = api_at(learnt, beside, &place.origin);
        if beside.is_none_or(|policy| policy.api(&api).is_none()) {
            define(&mut sketch, &api, place);
        }
        let whole = approvals == Approvals::WholeOrigin && kinds.iter().any(|(_, seen)| seen.approved > 0);
        let (asked, free): (Vec<_>, Vec<_>) = kinds.iter().partition(|(_, seen)| whole || seen.approved > 0);
        for (kinds, approve) in [(free, false), (asked, true)] {
            let routes = if place.traffic.is_passed_on() {
                connections(&kinds, place)
            } else {
                routes(&kinds, &mut report)
            };
            if !routes.is_empty() {
                rules.push(SketchRule {
                    api: api.clone(),
                    connections: place.traffic.is_passed_on(),
                    settings: settings(place, approve),
                    routes,
                    conditions: Vec::new(),
                });
            }
        }
    }
    sketch.grants.push(SketchGrant {
        name: learnt.options.grant.clone(),
        callers: learnt.options.callers.clone(),
        settings: limits(learnt),
        rules,
    });
    sketch.finish(report)
}

fn heading(learnt: &Learnt) -> Vec<String> {
    let counted = |unread: bool| {
        let places = learnt.places.iter().filter(move |(place, _)| place.traffic.is_passed_on() == unread);
        places.flat_map(|(_, kinds)| kinds).map(|(_, seen)| seen.count).sum::<u64>()
    };
    let (requests, connections) = (counted(false), counted(true));
    let seen = match (requests, connections) {
        (_, 0) => plural(requests, "request"),
        (0, _) => plural(connections, "connection"),
        _ => format!("{} and {}", plural(requests, "request"), plural(connections, "connection")),
    };
    let mut heading = vec![
        format!(
            "Learnt from {} of {}: the smallest grant that covers them.",
            seen,
            learnt.options.callers.join(", ")
        ),
        "Read each line before you put this file into a policy folder. Header fields and bodies are not"
            .to_owned(),
        "recorded, so no line looks at them: add by hand what a rule of today demands of them.".to_owned(),
    ];
    if learnt.options.include_refused {
        heading.push("Some of the requests were refused: their lines say so.".to_owned());
    }
    heading
}

/// The API that serves the origin: the folder's, the one that the records name, or a new one.
fn api_at(learnt: &Learnt, beside: Option<&Policy>, origin: &str) -> String {
    let recorded = learnt.apis.get(origin);
    if let Some(policy) = beside {
        let serves = |api: &&crate::ApiView| {
            let hosts = api.origins.iter().map(|(host, port)| api.traffic.url(host, *port));
            let aliases =
                api.origins.iter().filter_map(|(_, port)| Some(api.traffic.url(api.alias.as_ref()?, *port)));
            hosts.chain(aliases).any(|url| url == origin)
        };
        let serving: Vec<&crate::ApiView> = policy.apis().filter(serves).collect();
        let same = serving.iter().find(|api| recorded.is_some_and(|name| *api.name == **name));
        if let Some(api) = same.or(serving.first()) {
            return api.name.to_string();
        }
    }
    let place = origin.split_once("://").map_or(origin, |(_, place)| place);
    recorded.cloned().unwrap_or_else(|| name(place, "learnt"))
}

fn define(sketch: &mut Sketch, api: &str, place: &Place) {
    let origin = match place.traffic {
        Traffic::Requests => place.origin.clone(),
        Traffic::Tcp => place.origin.replacen("tcp://", "", 1),
        Traffic::TlsPassthrough => place.origin.replacen("tls://", "https://", 1),
    };
    match sketch.apis.iter_mut().find(|known| known.name == api) {
        Some(known) if known.origins.contains(&origin) => {}
        Some(known) => known.origins.push(origin),
        None => sketch.apis.push(SketchApi {
            name: api.to_owned(),
            origins: vec![origin],
            traffic: place.traffic,
            settings: Vec::new(),
        }),
    }
}

/// The one line of a rule about connections, which is a comment.
fn connections(kinds: &[&(String, Seen)], place: &Place) -> Vec<SketchRoute> {
    let seen = kinds.iter().map(|(_, seen)| SketchRoute {
        line: String::new(),
        comment: counts(seen, "connection"),
        subject: place.origin.clone(),
        covered_by: None,
        above: Vec::new(),
    });
    seen.collect()
}

/// How often something was seen, in how many runs, and what became of it.
fn counts(seen: &Seen, what: &str) -> String {
    let mut words = vec![plural(seen.count, what)];
    if !seen.runs.is_empty() {
        words.push(format!("in {}", plural(u64::try_from(seen.runs.len()).unwrap_or(u64::MAX), "run")));
    }
    for (number, what) in [(seen.refused, "refused"), (seen.approved, "approved")] {
        if number > 0 {
            words.push(format!("{number} {what}"));
        }
    }
    words.join(", ")
}

fn settings(place: &Place, approve: bool) -> Vec<String> {
    let websocket = place.websocket.then(|| "websocket = true".to_owned());
    websocket.into_iter().chain(approve.then(|| "approve = \"human\"".to_owned())).collect()
}

/// Floor and budget: no more than what was seen.
fn limits(learnt: &Learnt) -> Vec<String> {
    let mut limits = Vec::new();
    // A request without a tier came from outside of any boundary: no floor would take it.
    if let Some(Some(weakest)) = learnt.tiers.first() {
        limits.push(format!("floor = \"{weakest}\" # the weakest tier that was seen"));
    }
    if let Some(most) = learnt.calls.values().max() {
        limits.push(format!("budget = {{ calls = {most} }} # the most requests of one run"));
    }
    limits
}

fn routes(kinds: &[&(String, Seen)], report: &mut Report) -> Vec<SketchRoute> {
    let mut routes: Vec<SketchRoute> =
        kinds.iter().filter_map(|(method, seen)| route(method, seen, report)).collect();
    let path = |route: &SketchRoute| route.line.split_once(' ').map(|(_, path)| path.to_owned());
    routes.sort_by(|a, b| path(a).cmp(&path(b)).then_with(|| a.line.cmp(&b.line)));
    routes
}

fn route(method: &str, seen: &Seen, report: &mut Report) -> Option<SketchRoute> {
    let (path, mut evidence) = seen.shape.written();
    let subject = format!("{method} {path}");
    let (query, of_query) = seen.parameters.written(seen.count);
    evidence.extend(of_query);
    let listed = format!("{method} {path}{query}");
    let open = format!("{method} {path}?*");
    let line = match (problem(&listed), problem(&open)) {
        (None, _) => listed,
        (Some(_), None) => open,
        (_, Some(reason)) => {
            report.add(Kind::NotExpressed, subject, reason);
            return None;
        }
    };
    if line.ends_with("?*") {
        report.add(
            Kind::Wider,
            subject.as_str(),
            "a query that route lines cannot list: any query is allowed",
        );
    }
    let above = evidence.iter().map(|evidence| comment(evidence)).collect();
    Some(SketchRoute { line, comment: counts(seen, "request"), subject, covered_by: None, above })
}

/// Why the language has no such line.
fn problem(line: &str) -> Option<String> {
    match crate::route::line::parse(line) {
        (Some(_), _) => None,
        (None, problems) => {
            Some(problems.into_iter().next().map_or_else(String::new, |problem| problem.message))
        }
    }
}

fn plural(number: u64, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}
