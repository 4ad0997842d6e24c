//! Which started runs there are, by id and by key, and which are forgotten when there are too many.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use freeboard_wire::runs::State;

use super::entry::Entry;
use crate::admission::Full;
use crate::launch::unix_ms;
use crate::limits::{ENDED_RUNS_BYTES, ENDED_RUNS_KEPT, ENDED_RUNS_PER_CALLER, MAX_STARTED_BEYOND_PLACES};

/// A caller's own name for a run.
type Key = (Option<String>, String);

#[derive(Debug, Default)]
pub(super) struct Table {
    runs: HashMap<String, Arc<Entry>>,
    keys: HashMap<Key, String>,
    /// In the order in which they were started.
    order: VecDeque<String>,
    /// In the order in which they ended.
    ended: VecDeque<String>,
}

impl Table {
    pub(super) fn insert(&mut self, entry: Entry) -> Arc<Entry> {
        let entry = Arc::new(entry);
        let run = entry.facts.run.clone();
        if let Some(key) = &entry.facts.key {
            self.keys.insert((entry.facts.caller.clone(), key.clone()), run.clone());
        }
        self.order.push_back(run.clone());
        self.runs.insert(run, Arc::clone(&entry));
        entry
    }

    pub(super) fn any(&self, run: &str) -> Option<Arc<Entry>> {
        self.runs.get(run).cloned()
    }

    pub(super) fn by_key(&self, caller: Option<&str>, key: Option<&str>) -> Option<Arc<Entry>> {
        let key = (caller.map(str::to_owned), key?.to_owned());
        self.runs.get(self.keys.get(&key)?).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Oldest first.
    pub(super) fn all(&self) -> VecDeque<Arc<Entry>> {
        self.order.iter().filter_map(|run| self.any(run)).collect()
    }

    /// Whether this caller, who may have so many at once, may start one more.
    pub(super) fn room_for(&self, caller: Option<&str>, places: u32) -> Result<(), Full> {
        let active = self.runs.values().filter(|entry| entry.facts.caller.as_deref() == caller);
        let active = active.filter(|entry| entry.state() != State::Ended).count();
        let most = usize::try_from(places).unwrap_or(usize::MAX).saturating_add(MAX_STARTED_BEYOND_PLACES);
        if active < most { Ok(()) } else { Err(Full::Started(active)) }
    }

    pub(super) fn ended(&mut self, run: &str) {
        self.ended.push_back(run.to_owned());
    }

    pub(super) fn remove(&mut self, run: &str) -> Option<Arc<Entry>> {
        let entry = self.runs.remove(run)?;
        if let Some(key) = &entry.facts.key {
            self.keys.remove(&(entry.facts.caller.clone(), key.clone()));
        }
        self.order.retain(|other| other != run);
        self.ended.retain(|other| other != run);
        Some(entry)
    }

    /// Takes out ended runs that are too old, too many of one caller, or too large together; the oldest first.
    pub(super) fn forget_what_is_too_much(&mut self, now: SystemTime) -> Vec<Arc<Entry>> {
        let now = unix_ms(now);
        let kept = u64::try_from(ENDED_RUNS_KEPT.as_millis()).unwrap_or(u64::MAX);
        let mut of_caller: HashMap<Option<String>, usize> = HashMap::new();
        let mut bytes = 0_u64;
        let mut too_much = Vec::new();
        for run in self.ended.iter().rev() {
            let Some(entry) = self.runs.get(run) else { continue };
            let count = of_caller.entry(entry.facts.caller.clone()).or_default();
            *count += 1;
            bytes += entry.bytes();
            let old = entry.facts.created_unix_ms.saturating_add(kept) < now;
            if old || *count > ENDED_RUNS_PER_CALLER || bytes > ENDED_RUNS_BYTES {
                too_much.push(run.clone());
            }
        }
        too_much.iter().filter_map(|run| self.remove(run)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::entry::Facts;

    fn add(table: &mut Table, index: usize, caller: &str, created_unix_ms: u64, bytes: u64) -> String {
        let facts = Facts {
            run: format!("{caller}{index}"),
            caller: Some(caller.to_owned()),
            key: Some(format!("key{index}")),
            request_sha256: String::new(),
            created_unix_ms,
        };
        let entry = table.insert(Entry::new(facts, None, Arc::default()));
        entry.answer_stored(bytes);
        entry.end_of_journal();
        table.ended(&entry.facts.run);
        entry.facts.run.clone()
    }

    fn names(forgotten: &[Arc<Entry>]) -> Vec<&str> {
        forgotten.iter().map(|entry| entry.facts.run.as_str()).collect()
    }

    #[test]
    fn a_callers_many_runs_push_out_none_of_another() {
        let mut table = Table::default();
        let now = SystemTime::now();
        let other = add(&mut table, 0, "b", unix_ms(now), 1);
        for index in 0..=ENDED_RUNS_PER_CALLER {
            add(&mut table, index, "a", unix_ms(now), 1);
        }
        assert_eq!(names(&table.forget_what_is_too_much(now)), ["a0"]);
        assert!(table.any(&other).is_some());
        assert!(table.by_key(Some("a"), Some("key0")).is_none());
        assert!(table.by_key(Some("a"), Some("key1")).is_some());
        assert!(table.by_key(Some("b"), Some("key0")).is_some());
    }

    #[test]
    fn the_oldest_go_when_they_are_too_old_or_too_large() {
        let mut table = Table::default();
        let now = SystemTime::now();
        add(&mut table, 0, "a", 1, 1);
        add(&mut table, 1, "a", unix_ms(now), ENDED_RUNS_BYTES);
        add(&mut table, 2, "b", unix_ms(now), 1);
        let mut forgotten = table.forget_what_is_too_much(now);
        forgotten.sort_by(|a, b| a.facts.run.cmp(&b.facts.run));
        assert_eq!(names(&forgotten), ["a0", "a1"]);
        assert_eq!((table.len(), table.all().len()), (1, 1));
    }
}
