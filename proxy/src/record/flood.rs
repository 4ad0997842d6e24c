//! Floods of equal refusals: the first and the last are written, those between are counted (ATTACKS E23).
//!
//! Pure: entries and times go in, what is to be written comes out. Only refusals are ever held back; what was allowed
//! or failed is always written, one record each.

use std::collections::HashMap;

use freeboard_audit::{Decided, Entry, Event, Suppressed, rfc3339_ms};
use freeboard_policy::Reason;

use crate::limits::{FLOOD_KEYS, FLOOD_WINDOW, REFUSALS_WRITTEN_EACH};

/// What makes refusals equal. Host and run are text of bounded length; there are at most `FLOOD_KEYS` of these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    run: Option<std::sync::Arc<str>>,
    kind: &'static str,
    reason: Reason,
    /// None beyond `FLOOD_KEYS`, so that a guest cannot make us hold a key per invented name.
    host: Option<Box<str>>,
}

#[derive(Debug)]
struct Window {
    opened_unix_ms: u64,
    written: u64,
    held: u64,
    first_held_unix_ms: u64,
    last: Option<(u64, Entry)>,
}

#[derive(Debug, Default)]
pub(super) struct Flood {
    windows: HashMap<Key, Window>,
}

impl Flood {
    /// Gives the entry back when it is to be written now; keeps it when it is counted.
    pub(super) fn admit(&mut self, time_unix_ms: u64, entry: Entry) -> Option<Entry> {
        let Some(key) = self.key(&entry) else { return Some(entry) };
        let window = self.windows.entry(key).or_insert_with(|| Window {
            opened_unix_ms: time_unix_ms,
            written: 0,
            held: 0,
            first_held_unix_ms: 0,
            last: None,
        });
        if window.written < REFUSALS_WRITTEN_EACH {
            window.written += 1;
            return Some(entry);
        }
        if window.held == 0 {
            window.first_held_unix_ms = time_unix_ms;
        }
        window.held += 1;
        window.last = Some((time_unix_ms, entry));
        None
    }

    /// What windows that are over leave to be written. `all` at the end of the process.
    pub(super) fn close(&mut self, now_unix_ms: u64, all: bool) -> Vec<(u64, Entry)> {
        let length = u64::try_from(FLOOD_WINDOW.as_millis()).unwrap_or(u64::MAX);
        let mut out = Vec::new();
        self.windows.retain(|key, window| {
            // A clock that was set back must not keep a window open for ever.
            let over = now_unix_ms.abs_diff(window.opened_unix_ms) >= length;
            if over || all {
                out.extend(remains(key, window));
            }
            !(over || all)
        });
        out
    }

    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    fn key(&self, entry: &Entry) -> Option<Key> {
        let (kind, decided) = refusal(&entry.event)?;
        let mut key = Key {
            run: entry.run.as_ref().map(|run| std::sync::Arc::clone(&run.run)),
            kind,
            reason: decided.reason?,
            host: Some(decided.host.clone()),
        };
        if self.windows.len() >= FLOOD_KEYS && !self.windows.contains_key(&key) {
            key.host = None;
        }
        Some(key)
    }
}

fn refusal(event: &Event) -> Option<(&'static str, &Decided)> {
    let kind = match event {
        Event::Request(_) => "request",
        Event::Tunnel(_) => "tunnel",
        Event::Tls(_) => "tls",
        Event::Connection(_) => "connection",
        Event::Dns(_) => "dns",
        _ => return None,
    };
    event
        .decided()
        .filter(|decided| decided.verdict == freeboard_audit::Verdict::Denied)
        .map(|decided| (kind, decided))
}

/// The count of those between, then the last one.
fn remains(key: &Key, window: &mut Window) -> Vec<(u64, Entry)> {
    let Some((last_unix_ms, last)) = window.last.take() else { return Vec::new() };
    let mut out = Vec::new();
    if window.held > 1 {
        let event = Event::Suppressed(Suppressed {
            of: key.kind.into(),
            reason: key.reason,
            host: key.host.clone(),
            count: window.held - 1,
            first: rfc3339_ms(window.first_held_unix_ms).into(),
            last: rfc3339_ms(last_unix_ms).into(),
        });
        out.push((last_unix_ms, Entry { policy: last.policy.clone(), run: last.run.clone(), event }));
    }
    out.push((last_unix_ms, last));
    out
}
