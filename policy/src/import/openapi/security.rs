//! Security schemes to a credential of the right kind, for a person to complete.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::Document;
use super::operation::Operation;
use crate::import::text::{comment, name, quoted};
use crate::import::{Kind, Report};

/// What the chosen operations ask for: scheme → scopes.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    schemes: BTreeMap<String, Scheme>,
}

#[derive(Debug)]
struct Scheme {
    /// What the description says, for the reader.
    says: String,
    /// Fields of the credential but for its secret.
    fields: Vec<String>,
    /// The field that refers to the secret.
    secret: &'static str,
    scopes: Vec<String>,
}

/// A commented credential.
#[derive(Debug)]
pub(super) struct Stub {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
}

impl Wanted {
    pub(super) fn add(&mut self, document: &Document, operation: &Operation<'_>, report: &mut Report) {
        let shared = document.root().get("security");
        let wanted = operation.security.or(shared).and_then(Value::as_array);
        for (scheme, scopes) in wanted.into_iter().flatten().filter_map(Value::as_object).flatten() {
            if !self.schemes.contains_key(scheme) {
                match described(document, scheme) {
                    Ok(described) => {
                        self.schemes.insert(scheme.clone(), described);
                    }
                    Err(reason) => {
                        report.add(
                            Kind::Note,
                            "",
                            format!("security scheme `{}`: {reason}", comment(scheme)),
                        );
                        continue;
                    }
                }
            }
            let Some(known) = self.schemes.get_mut(scheme) else { continue };
            for scope in scopes.as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !known.scopes.iter().any(|before| before == scope) {
                    known.scopes.push(scope.to_owned());
                }
            }
        }
    }

    pub(super) fn stubs(&self, api: &str) -> Vec<Stub> {
        let several = self.schemes.len() > 1;
        self.schemes
            .iter()
            .map(|(scheme, described)| {
                let name = if several { name(&format!("{api}-{scheme}"), api) } else { api.to_owned() };
                let mut lines = vec![format!("# Security scheme `{}`: {}.", comment(scheme), described.says)];
                if !described.scopes.is_empty() {
                    let scopes: Vec<String> = described.scopes.iter().map(|scope| comment(scope)).collect();
                    lines.push(format!(
                        "# The operations below need these scopes, no others: {}",
                        scopes.join(" ")
                    ));
                }
                lines.push(format!("# [credential.{name}]"));
                lines.extend(described.fields.iter().map(|field| format!("# {field}")));
                let secret = format!("/etc/freeboard/secrets/{name}");
                lines.push(format!("# {} = {{ file = \"{secret}\" }}", described.secret));
                Stub { name, lines }
            })
            .collect()
    }
}

fn described(document: &Document, scheme: &str) -> Result<Scheme, String> {
    let schemes = document.root().pointer("/components/securitySchemes");
    let value = schemes.and_then(|schemes| schemes.get(scheme)).ok_or("it is not described")?;
    let value = document.follow(value)?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let made = |says: String, secret: &'static str, fields: &[String]| {
        Ok(Scheme { says, fields: fields.to_vec(), secret, scopes: Vec::new() })
    };
    let bearer = ["kind = \"bearer\"".to_owned()];
    let parameter = comment(text("name"));
    match (text("type"), text("in"), text("scheme").to_ascii_lowercase().as_str()) {
        ("http", _, "bearer") => {
            let format = comment(text("bearerFormat"));
            let format = if format.is_empty() { format } else { format!(" ({format})") };
            made(format!("a bearer token{format}"), "token", &bearer)
        }
        ("http", _, "basic") => {
            let fields = ["kind = \"basic\"".to_owned(), "username = \"USER\"".to_owned()];
            made("Basic authentication".to_owned(), "password", &fields)
        }
        ("apiKey", "header", _) => {
            let header = quoted(&parameter.to_ascii_lowercase());
            let fields = ["kind = \"header\"".to_owned(), format!("name = {header}")];
            made(format!("a key in the header `{parameter}`"), "value", &fields)
        }
        ("apiKey", "query", _) => {
            let fields = ["kind = \"query\"".to_owned(), format!("parameter = {}", quoted(&parameter))];
            made(format!("a key in the parameter `{parameter}`"), "value", &fields)
        }
        ("oauth2", ..) => {
            made("OAuth 2.0, whose access token is a bearer token".to_owned(), "token", &bearer)
        }
        ("openIdConnect", ..) => {
            made("OpenID Connect, whose access token is a bearer token".to_owned(), "token", &bearer)
        }
        ("apiKey", other, _) => Err(format!("a key in a `{}` is no kind of credential", comment(other))),
        ("http", _, other) => Err(format!("HTTP scheme `{}` is no kind of credential", comment(other))),
        (other, ..) => Err(format!("`{}` is no kind of credential", comment(other))),
    }
}
