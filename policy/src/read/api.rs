//! `[api.NAME]`: where requests go, whom to trust there, what is attached.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeTable;

use super::credential::absolute;
use super::placeholder;
use super::table::{Fields, Reader, shared};
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{At, DraftApi};
use crate::model::{ApiView, HealthCheck};
use crate::origin::{Origin, host_name};
use crate::{AddressClass, AddressRange, Target, Traffic};

pub(crate) const API_FIELDS: &[&str] = &[
    "origins",
    "tcp",
    "tls",
    "credential",
    "placeholder",
    "trust",
    "addresses",
    "alias",
    "hidden",
    "per_minute",
    "health_check",
];
pub(crate) const TRUST_FIELDS: &[&str] = &["ca_file", "pin_sha256"];

pub(super) fn read(
    reader: &mut Reader<'_, '_>,
    name: At<Arc<str>>,
    key: &Spanned<Cow<'_, str>>,
    table: &DeTable<'_>,
) -> Option<()> {
    let fields = Fields::new(reader, table, key.span(), "an API", API_FIELDS);
    let traffic = traffic(reader, &fields);
    let origins = match traffic {
        Traffic::Tcp => destinations(reader, &fields),
        Traffic::Requests | Traffic::TlsPassthrough => origins(reader, &fields),
    };
    if traffic.is_passed_on() {
        only_connections(reader, &fields, traffic);
    }
    let credential = fields.text(reader, "credential").map(shared);
    let (ca_file, pin_sha256) = trust(reader, &fields);
    let addresses = addresses(reader, &fields);
    let alias = alias(reader, &fields, origins.as_deref().unwrap_or_default());
    let hidden = fields.flag(reader, "hidden");
    if hidden && fields.get("alias").is_none() {
        let help = "add `alias = \"NAME\"`: guests need a name that they may know";
        reader.error(Code::BadAlias, key.span(), "a hidden API has no alias", help);
    }
    let per_minute = fields.count(reader, "per_minute");
    let health_check = health_check(reader, &fields);
    let placeholder = placeholder::read(reader, &fields);
    let origins = origins?;
    let view = ApiView {
        name: Arc::clone(&name.value),
        origins: origins.iter().map(|origin| (origin.value.host.clone(), origin.value.port)).collect(),
        ca_file,
        pin_sha256,
        addresses,
        traffic,
        alias: alias.as_ref().map(|alias| alias.value.clone()),
        hidden,
        credential: credential.as_ref().map(|credential| Arc::clone(&credential.value)),
        per_minute,
        health_check,
        placeholder,
    };
    reader.draft.apis.push(DraftApi { name, origins, alias, credential, view });
    Some(())
}

fn origins(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Vec<At<Origin>>> {
    let texts = fields.required_texts(reader, "origins", "origins = [\"https://api.example.com\"]")?;
    let mut origins: Vec<At<Origin>> = Vec::new();
    for (text, span) in texts {
        match Origin::parse(text) {
            Ok(origin) if origins.iter().any(|before| before.value == origin) => {
                reader.error(
                    Code::Repeated,
                    span,
                    format!("`{text}` is listed twice"),
                    "list each origin once",
                );
            }
            Ok(value) => origins.push(At { value, place: reader.place(span) }),
            Err(error) => reader.error(error.code, span, error.message, &error.help),
        }
    }
    (!origins.is_empty()).then_some(origins)
}

/// What the API is made of: `tcp` lists destinations of its own, `tls = "passthrough"` is about `origins`.
fn traffic(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Traffic {
    let passthrough = match fields.text(reader, "tls") {
        Some(text) if text.value == "passthrough" => true,
        Some(text) => {
            let message = format!("`tls` is `{}`", text.value.escape_debug());
            let help = "write `tls = \"passthrough\"` for programs that trust one certificate only, or leave it out: then the broker ends TLS";
            reader.push(Diagnostic::error(Code::BadValue, message).at(text.place).help(help));
            false
        }
        None => false,
    };
    let Some(tcp) = fields.get("tcp") else {
        return if passthrough { Traffic::TlsPassthrough } else { Traffic::Requests };
    };
    for (other, help) in [
        ("origins", "an API takes requests or connections: define one for each"),
        ("tls", "a TCP connection may carry TLS; nobody looks at it"),
    ] {
        if fields.get(other).is_some() {
            reader.error(Code::BadConnection, tcp.span(), format!("`tcp` beside `{other}`"), help);
        }
    }
    Traffic::Tcp
}

/// `tcp = ["HOST:PORT"]`
fn destinations(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Vec<At<Origin>>> {
    let mut destinations = Vec::new();
    for (text, span) in fields.texts(reader, "tcp")? {
        match Origin::parse_destination(text) {
            Ok(value) => destinations.push(At { value, place: reader.place(span) }),
            Err(error) => reader.error(error.code, span, error.message, &error.help),
        }
    }
    (!destinations.is_empty()).then_some(destinations)
}

/// What says something about requests, or about a connection that the broker makes itself.
fn only_connections(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, traffic: Traffic) {
    let mut refused = vec![
        ("credential", "a credential is attached to requests, and the broker sees none here"),
        ("placeholder", "a placeholder is replaced in requests, and the broker sees none here"),
        ("trust", "the broker verifies no certificate here: the program that connects does"),
        ("health_check", "the broker sends no request of its own here"),
    ];
    if traffic == Traffic::TlsPassthrough {
        refused
            .push(("alias", "the server's certificate is for its own name, and programs ask for that one"));
    }
    for (field, help) in refused {
        if let Some(value) = fields.get(field) {
            let message = format!("`{field}` on an API whose connections are passed on unread");
            reader.error(Code::BadConnection, value.span(), message, help);
        }
    }
}

/// A request that a probe can send as it stands: one method, a path of literal text, no query.
fn health_check(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<HealthCheck> {
    let text = fields.text(reader, "health_check")?;
    let plain = text.value.split_once(' ').filter(|(method, path)| {
        matches!(*method, "GET" | "HEAD")
            && Target::parse(path.as_bytes()).is_ok_and(|target| target.query().is_none())
    });
    match plain {
        Some((method, path)) => Some(HealthCheck { method: method.into(), path: path.into() }),
        None => {
            let message = format!("`{}` is not a request that a probe can send", text.value.escape_debug());
            let help = "write `health_check = \"GET /health\"`: GET or HEAD, and a path without a query";
            reader.push(Diagnostic::error(Code::BadValue, message).at(text.place).help(help));
            None
        }
    }
}

pub(super) fn trust(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> (Option<String>, Vec<String>) {
    let Some(table) = fields.table(reader, "trust") else { return (None, Vec::new()) };
    let header: Range<usize> = fields.get("trust").map_or(0..0, Spanned::span);
    let trust = Fields::new(reader, table, header.clone(), "`trust`", TRUST_FIELDS);
    let ca_file = trust.text(reader, "ca_file").and_then(|path| absolute(reader, path));
    let mut pins = Vec::new();
    for (text, span) in trust.texts(reader, "pin_sha256").unwrap_or_default() {
        let lower = text.to_ascii_lowercase();
        if lower.len() == 64 && lower.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            pins.push(lower);
        } else {
            let help = "a pin is the SHA-256 of a public key (SPKI) as 64 hex digits";
            reader.error(Code::BadValue, span, "not a SHA-256 in hex", help);
        }
    }
    if table.is_empty() {
        reader.error(
            Code::MissingField,
            header,
            "`trust` says nothing",
            "add `ca_file` or `pin_sha256`, or leave it out",
        );
    }
    (ca_file, pins)
}

pub(super) fn addresses(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Vec<AddressRange> {
    let mut ranges = Vec::new();
    for (text, span) in fields.texts(reader, "addresses").unwrap_or_default() {
        match AddressRange::parse(text) {
            Ok(range) => {
                warn_about_range(reader, &range, span);
                ranges.push(range);
            }
            Err(error) => {
                let help =
                    "name the private ranges in which the API's addresses are, as narrow as they are known";
                reader.error(Code::BadAddress, span, error.to_string(), help);
            }
        }
    }
    ranges.sort();
    ranges
}

fn warn_about_range(reader: &mut Reader<'_, '_>, range: &AddressRange, span: Range<usize>) {
    match range.class() {
        AddressClass::Loopback => {
            let help = "every service that listens on this host's loopback behind this name can be called; fine for tests and sidecars";
            reader.warning(
                Code::LoopbackAddress,
                span,
                format!("`{range}` opens the broker's own host"),
                help,
            );
        }
        AddressClass::Public => {
            let help = "public addresses need no permission, and the list does not restrict them; remove it";
            reader.warning(Code::BadAddress, span, format!("`{range}` is public already"), help);
        }
        _ => {}
    }
}

fn alias(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    origins: &[At<Origin>],
) -> Option<At<crate::Host>> {
    let text = fields.text(reader, "alias")?;
    match host_name(&text.value) {
        Ok(_) if origins.len() > 1 => {
            let help = "define one API per origin, or leave the alias out";
            let message = "an alias for several origins: which one it means is open";
            reader.push(Diagnostic::error(Code::BadAlias, message).at(text.place).help(help));
            None
        }
        Ok(value) => Some(At { value, place: text.place }),
        Err(error) => {
            reader.push(Diagnostic::error(error.code, error.message).at(text.place).help(error.help));
            None
        }
    }
}
