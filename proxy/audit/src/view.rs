//! A record as the line that people read. Whatever a guest put into a field is shown with its escapes.

use serde_json::{Map, Value};

use crate::printable;

/// A record as read back from a log.
#[derive(Debug, Clone)]
pub struct RawRecord(Map<String, Value>);

impl RawRecord {
    /// Reads one line; `None` when it is no record.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_slice(line).ok()?;
        (fields.contains_key("seq") && fields.contains_key("kind")).then_some(Self(fields))
    }

    pub fn seq(&self) -> Option<u64> {
        self.0.get("seq")?.as_u64()
    }

    /// The value of a field as text without quotes; `None` when the record does not have it.
    pub fn field(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    fn text(&self, name: &str) -> String {
        self.field(name).map(|text| printable(&text)).unwrap_or_default()
    }

    fn number(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or_default()
    }

    /// `label=value` for each field that the record has.
    fn labelled(&self, names: &[&str]) -> String {
        names.iter().filter(|name| self.0.contains_key(**name)).fold(String::new(), |line, name| {
            let gap = if line.is_empty() { "" } else { " " };
            format!("{line}{gap}{name}={}", self.text(name))
        })
    }

    fn list(&self, name: &str) -> String {
        let items = self.0.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        items.iter().filter_map(Value::as_str).map(printable).collect::<Vec<_>>().join(",")
    }
}

/// One line without a line feed, printable ASCII only:
/// `2026-11-30T14:29:11.123Z #42 denied no_rule GET api.test/v1/x 403 run=… caller=… tier=… …`.
pub fn readable(record: &RawRecord) -> String {
    let kind = record.text("kind");
    let what = match kind.as_str() {
        "request" => request(record),
        "tunnel" | "tls" | "connection" => unborn(record, &kind),
        "dns" => format!(
            "{} {} DNS {} {}",
            record.text("verdict"),
            record.text("reason"),
            record.text("method"),
            record.text("host")
        ),
        "gate_opened" => format!(
            "gate opened grants=[{}] {} evidence={}",
            record.list("grants"),
            record.labelled(&["floor", "expires"]),
            short(&record.text("evidence"))
        ),
        "gate_closed" => {
            format!("gate closed {}", record.labelled(&["cause", "allowed", "denied", "failed", "shed"]))
        }
        "run_refused" => format!(
            "run refused {} grants=[{}] {} {}",
            record.text("reason"),
            record.list("grants"),
            record.labelled(&["floor"]),
            record.text("detail")
        ),
        "policy_loaded" => {
            format!("policy loaded {}", record.labelled(&["generation", "cause", "files", "warnings"]))
        }
        "reload_refused" => format!(
            "RELOAD REFUSED, generation {} stays: {}",
            record.text("generation"),
            record.text("detail")
        ),
        "revoked" => {
            format!("REVOKED {}", record.labelled(&["of", "name", "by", "runs"]))
        }
        "started" => format!("broker started {}", record.labelled(&["version", "pid", "uid"])),
        "stopped" => format!("broker stopped {}", record.labelled(&["cause", "cut"])),
        "finding" => format!(
            "finding {} {} {} {}",
            record.text("severity"),
            record.text("code"),
            record.labelled(&["credential"]),
            record.text("detail")
        ),
        "suppressed" => format!(
            "{} more denied {} {} from {} to {}",
            record.text("count"),
            record.text("reason"),
            record.labelled(&["of", "host"]),
            record.text("first"),
            record.text("last")
        ),
        "recovered" => format!("log continued after a torn line of {} bytes", record.text("torn_bytes")),
        _ => kind,
    };
    let who = record.labelled(&["run", "caller", "tier", "provider"]);
    let line = format!("{} #{} {what} {who}", record.text("time"), record.text("seq"));
    line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn request(record: &RawRecord) -> String {
    let port = match record.number("port") {
        443 => String::new(),
        port => format!(":{port}"),
    };
    format!(
        "{} {} {} {}{port}{} {} {} {}us up={} down={}",
        record.text("verdict"),
        record.text("reason"),
        record.text("method"),
        record.text("host"),
        record.text("path"),
        record.text("status"),
        record.labelled(&["grant", "rule", "credential", "request_id", "detail"]),
        record.text("duration_us"),
        record.text("request_bytes"),
        record.text("response_bytes"),
    )
}

/// What never became a request, or was passed on unread.
fn unborn(record: &RawRecord, kind: &str) -> String {
    let carried = match record.number("request_bytes") + record.number("response_bytes") {
        0 => String::new(),
        _ => format!("up={} down={}", record.text("request_bytes"), record.text("response_bytes")),
    };
    format!(
        "{} {} {kind} {} {carried}",
        record.text("verdict"),
        record.text("reason"),
        record.labelled(&[
            "host",
            "port",
            "door",
            "protocol",
            "grant",
            "rule",
            "uninspected",
            "upstream",
            "request_id",
            "detail"
        ])
    )
}

/// The first 12 digits of a digest.
fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}
