//! Which sessions there are, and how many there may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use freeboard_wire::SessionEnd;
use freeboard_wire::digest::session_fingerprint;
use tokio::sync::Notify;

use super::Settings;
use super::entry::{Chain, Ended, Entry};
use crate::admission::Full;
use crate::limits::MAX_ENDED_SESSIONS;

/// All sessions of the daemon.
#[derive(Debug)]
pub struct Sessions {
    pub settings: Settings,
    table: Mutex<Table>,
    pub(super) changed: Arc<Notify>,
    /// Languages of cells that were proved, by provider; what a provider says of itself where nothing was proved.
    pub(super) proved: OnceLock<Vec<(&'static str, Vec<String>)>>,
}

#[derive(Debug, Default)]
struct Table {
    /// By fingerprint.
    entries: HashMap<String, Arc<Entry>>,
    opening: Vec<Seat>,
    next: u64,
    stopping: bool,
}

/// A place in the table while its sandbox is made.
#[derive(Debug, Clone)]
struct Seat {
    number: u64,
    caller: Option<String>,
    owner: Option<String>,
    /// Will be closed when the new one is open.
    victim: Option<String>,
}

/// A reserved place; dropped before it is used, it is free again.
#[derive(Debug)]
pub(super) struct Reservation {
    sessions: Arc<Sessions>,
    seat: Seat,
}

/// How a session stands at its close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub fingerprint: String,
    pub chain: Chain,
    pub ended: Ended,
}

impl Sessions {
    pub fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self { settings, table: Mutex::default(), changed: Arc::default(), proved: OnceLock::new() })
    }

    /// Whether any can be opened, as far as settings go.
    pub fn are_offered(&self) -> bool {
        self.settings.most > 0
    }

    /// Languages of cells at this provider.
    pub fn languages(&self, provider: &'static str, described: &[String]) -> Vec<String> {
        let proved = self.proved.get().into_iter().flatten();
        let found = proved.into_iter().find(|(name, _)| *name == provider);
        found.map_or_else(|| described.to_vec(), |(_, languages)| languages.clone())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this id, when it is this caller's. A foreign one is not told from one that does not exist. Being
    /// named claims it.
    pub fn find(&self, id: &str, caller: Option<&str>) -> Option<Arc<Entry>> {
        let entry = self.table().entries.get(&session_fingerprint(id)).cloned()?;
        if entry.caller.as_deref() != caller {
            return None;
        }
        entry.claim();
        self.changed.notify_one();
        Some(entry)
    }

    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.table().entries.values().cloned().collect()
    }

    /// How many have not ended.
    pub fn alive(&self) -> usize {
        self.table().entries.values().filter(|entry| entry.ended().is_none()).count()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.table().stopping
    }

    pub(super) fn stop_opening(&self) {
        self.table().stopping = true;
    }

    /// Forgets a session that ended long ago.
    pub(super) fn forget(&self, fingerprint: &str) {
        self.table().entries.remove(fingerprint);
    }

    /// A place for a session of this owner of this caller. Where the owner has all of its own, the one that was idle for
    /// longest will make room, once the new one is open.
    pub(super) fn reserve(
        self: &Arc<Self>,
        caller: Option<&str>,
        owner: Option<&str>,
        per_caller: u32,
    ) -> Result<Reservation, Full> {
        let settings = self.settings;
        let mut table = self.table();
        if table.stopping {
            return Err(Full::Sessions(0));
        }
        let victim = match owner {
            Some(owner) if settings.per_owner > 0 => table.victim(caller, owner, settings.per_owner)?,
            _ => None,
        };
        let making_room = u32::from(victim.is_some());
        let of_caller = table.count(|of| of.0 == caller).saturating_sub(making_room);
        if per_caller > 0 && of_caller >= per_caller {
            return Err(Full::CallerSessions(per_caller));
        }
        if table.count(|_| true).saturating_sub(making_room) >= settings.most {
            return Err(Full::Sessions(settings.most));
        }
        table.next += 1;
        let seat = Seat {
            number: table.next,
            caller: caller.map(str::to_owned),
            owner: owner.map(str::to_owned),
            victim,
        };
        table.opening.push(seat.clone());
        Ok(Reservation { sessions: Arc::clone(self), seat })
    }

    /// Closes a session and says how it stands. Waits for a call in progress; a second close says the same.
    pub async fn close(&self, entry: &Arc<Entry>) -> Summary {
        if let Some(turn) = entry.last_turn().await {
            turn.end(SessionEnd::Closed, "").await;
        }
        let now = Ended { end: SessionEnd::Closed, detail: String::new(), since: std::time::Instant::now() };
        let ended = entry.ended().unwrap_or(now);
        Summary { fingerprint: entry.fingerprint.clone(), chain: entry.chain(), ended }
    }
}

type Whose<'a> = (Option<&'a str>, Option<&'a str>);

impl Table {
    /// Sessions that are open or being opened, of whom `whose` says so.
    fn count(&self, whose: impl Fn(Whose<'_>) -> bool) -> u32 {
        let open = self.entries.values().filter(|entry| entry.ended().is_none());
        let open = open.filter(|entry| whose((entry.caller.as_deref(), entry.owner.as_deref())));
        let opening =
            self.opening.iter().filter(|seat| whose((seat.caller.as_deref(), seat.owner.as_deref())));
        u32::try_from(open.count() + opening.count()).unwrap_or(u32::MAX)
    }

    /// Which session of the owner makes room for one more: none while there is room.
    fn victim(&self, caller: Option<&str>, owner: &str, most: u32) -> Result<Option<String>, Full> {
        let mine = |of: Whose<'_>| of == (caller, Some(owner));
        let leaving = self.opening.iter().filter(|seat| seat.victim.is_some());
        let leaving = leaving.filter(|seat| mine((seat.caller.as_deref(), seat.owner.as_deref()))).count();
        if self.count(mine).saturating_sub(u32::try_from(leaving).unwrap_or(u32::MAX)) < most {
            return Ok(None);
        }
        let chosen = |entry: &Arc<Entry>| {
            self.opening.iter().any(|seat| seat.victim.as_deref() == Some(&entry.fingerprint))
        };
        let idle = self.entries.values().filter(|entry| {
            mine((entry.caller.as_deref(), entry.owner.as_deref()))
                && entry.ended().is_none()
                && entry.is_idle()
                && !chosen(entry)
        });
        let longest = idle.min_by_key(|entry| entry.used());
        longest.map(|entry| Some(entry.fingerprint.clone())).ok_or(Full::OwnerSessions(most))
    }

    /// Ended sessions can be asked for a while, but not without bound.
    fn drop_oldest_ended(&mut self) {
        let ended = self.entries.values().filter_map(|entry| Some((entry.ended()?.since, entry)));
        let mut ended: Vec<_> = ended.map(|(since, entry)| (since, entry.fingerprint.clone())).collect();
        if ended.len() > MAX_ENDED_SESSIONS {
            ended.sort();
            for (_, fingerprint) in ended.drain(..ended.len() - MAX_ENDED_SESSIONS) {
                self.entries.remove(&fingerprint);
            }
        }
    }
}

impl Reservation {
    /// Puts the open session into the table, after the one that makes room for it has ended. When that one is busy by now,
    /// nothing is closed and the new one is refused.
    pub(super) async fn fill(self, entry: Entry) -> Result<Arc<Entry>, Full> {
        let victim = self.seat.victim.as_ref();
        let victim = victim.and_then(|victim| self.sessions.table().entries.get(victim).cloned());
        if let Some(victim) = victim
            && victim.ended().is_none()
        {
            let busy = Full::OwnerSessions(self.sessions.settings.per_owner);
            let turn = victim.try_turn().ok_or(busy)?;
            turn.end(SessionEnd::Replaced, "a newer session of the same owner took its place").await;
        }
        let entry = Arc::new(entry);
        let mut table = self.sessions.table();
        table.entries.insert(entry.fingerprint.clone(), Arc::clone(&entry));
        table.drop_oldest_ended();
        drop(table);
        self.sessions.changed.notify_one();
        Ok(entry)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.sessions.table().opening.retain(|seat| seat.number != self.seat.number);
    }
}
