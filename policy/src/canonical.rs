//! The identity of a policy: one text for everything that it means, and the SHA-256 of that text.
//!
//! Files, spaces, comments, spellings of one route and the order of definitions do not change it. The order of rules
//! inside one grant does, because rule ids count them.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::draft::{Draft, DraftGrant, Effect};
use crate::model::CredentialView;

/// The canonical form: JSON with sorted keys, definitions sorted by name.
pub(crate) fn form(draft: &Draft) -> String {
    let credentials =
        draft.credentials.iter().map(|found| (found.name.value.to_string(), credential(&found.view)));
    let apis =
        draft.apis.iter().map(|api| {
            let mut origins: Vec<String> = api
                .origins
                .iter()
                .map(|origin| api.view.traffic.url(&origin.value.host, origin.value.port))
                .collect();
            origins.sort_unstable();
            let view = &api.view;
            let value = json!({
                "origins": origins,
                "credential": view.credential,
                "ca_file": view.ca_file,
                "pin_sha256": sorted(&view.pin_sha256),
                "addresses": view.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "alias": view.alias,
                "hidden": view.hidden,
            });
            let mut value = value;
            if let Value::Object(form) = &mut value {
                // Left out where there is nothing, so that a plain policy keeps its digest.
                form.extend(view.placeholder.as_ref().map(|found| ("placeholder".to_owned(), json!(found))));
                form.extend(view.per_minute.map(|number| ("per_minute".to_owned(), json!(number))));
                let check = view.health_check.as_ref();
                form.extend(check.map(|check| {
                    ("health_check".to_owned(), json!(format!("{} {}", check.method, check.path)))
                }));
            }
            (api.name.value.to_string(), value)
        });
    let grants = draft.grants.iter().map(|found| (found.name.value.to_string(), grant(found)));
    let whole = json!({
        "format": "freeboard-policy/1",
        "credential": credentials.collect::<serde_json::Map<_, _>>(),
        "api": apis.collect::<serde_json::Map<_, _>>(),
        "grant": grants.collect::<serde_json::Map<_, _>>(),
    });
    whole.to_string()
}

/// SHA-256 in lower-case hex.
pub(crate) fn digest(form: &str) -> Arc<str> {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(form.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Arc::from(hex)
}

fn sorted(texts: &[String]) -> Vec<&String> {
    let mut texts: Vec<&String> = texts.iter().collect();
    texts.sort_unstable();
    texts
}

/// The meaning of a credential, without its name. References to secrets, never secrets.
pub(crate) fn credential(view: &CredentialView) -> Value {
    match view {
        CredentialView::Bearer { token } => json!({ "kind": "bearer", "token": token }),
        CredentialView::Header { name, value } => {
            json!({ "kind": "header", "name": name, "value": value })
        }
        CredentialView::Basic { username, password } => {
            json!({ "kind": "basic", "username": username, "password": password })
        }
        CredentialView::Query { parameter, value } => {
            json!({ "kind": "query", "parameter": parameter, "value": value })
        }
        CredentialView::Jwt { algorithm, key, issuer, audience, key_id, scope, ttl_seconds } => json!({
            "kind": "jwt", "algorithm": algorithm, "key": key, "issuer": issuer, "audience": audience,
            "key_id": key_id, "scope": scope, "ttl_seconds": ttl_seconds,
        }),
        CredentialView::OAuth2(found) => self::view(view.kind(), found),
        CredentialView::Aws(found) => self::view(view.kind(), found),
        CredentialView::GithubApp(found) => self::view(view.kind(), found),
        CredentialView::Gcp(found) => self::view(view.kind(), found),
        CredentialView::Exec(found) => self::view(view.kind(), found),
        CredentialView::Vault(found) => self::view(view.kind(), found),
        CredentialView::Mtls(found) => self::view(view.kind(), found),
    }
}

/// The view as it is, with its kind.
fn view(kind: &str, view: &impl serde::Serialize) -> Value {
    let mut value = json!(view);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind".to_owned(), kind.into());
    }
    value
}

fn grant(grant: &DraftGrant) -> Value {
    let view = &grant.view;
    let rules = |effect: Effect| -> Vec<Value> {
        let of_effect = grant.rules.iter().filter(|rule| rule.effect == effect);
        let one = of_effect.map(|rule| {
            let routes: Vec<String> = rule.routes.iter().map(|route| route.line.canonical()).collect();
            let mut form = json!({ "api": rule.api.value, "websocket": rule.websocket, "routes": routes });
            // Left out where there is nothing, so that a plain policy keeps its digest.
            if let (Some(terms), Value::Object(form)) = (&rule.terms, &mut form) {
                form.insert("when".to_owned(), terms.canonical());
            }
            form
        });
        one.collect()
    };
    let mut form = json!({
        "callers": grant.callers,
        "floor": view.floor,
        "ttl_seconds": view.ttl_seconds,
        "expires_unix": view.expires_unix,
        "calls": view.calls,
        "per_minute": view.per_minute,
        "concurrent": view.concurrent,
        "request_bytes": view.request_bytes,
        "response_bytes": view.response_bytes,
        "allow": rules(Effect::Allow),
        "deny": rules(Effect::Deny),
    });
    if let Value::Object(form) = &mut form {
        form.extend(view.not_before_unix.map(|start| ("not_before_unix".to_owned(), json!(start))));
        form.extend(view.caller_per_minute.map(|number| ("caller_per_minute".to_owned(), json!(number))));
        if view.sessions {
            form.insert("sessions".to_owned(), json!(true));
        }
        if !view.schedule.is_empty() {
            let mut windows: Vec<String> = view.schedule.iter().map(ToString::to_string).collect();
            windows.sort_unstable();
            form.insert("schedule".to_owned(), json!(windows));
        }
    }
    form
}
