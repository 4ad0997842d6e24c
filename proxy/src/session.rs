//! What runs use up, and which of them do so together: the calls of one session.
//!
//! In: the session that sandboxd names with a gate. Out: the account that the run is charged to. A run of its own has an account of
//! its own, which goes with it; a session's stays until the session's time is over, so that neither a budget nor a revocation ends
//! with a call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freeboard_control::SessionOfCall;
use freeboard_policy::{GrantView, Reason, RuleId};

use crate::broker::Moment;
use crate::decide::budget::GrantBudget;
use crate::dns::NameTable;
use crate::error::Stop;
use crate::limits;

/// What a run, or all calls of a session, have used.
#[derive(Debug)]
pub struct Account {
    /// The first gate that was charged to it: what a grant's `ttl` counts from.
    pub since: Moment,
    /// Synthetic addresses of names. `dns` issues them, `accept` looks them up. In a session they stay what they are, since programs
    /// of one call remember them in the next.
    pub names: NameTable,
    budgets: Mutex<HashMap<Arc<str>, Arc<GrantBudget>>>,
    /// Calls by each route whose rule bounds them.
    route_calls: Mutex<HashMap<RuleId, u64>>,
    /// Somebody took its grants away.
    is_revoked: AtomicBool,
}

impl Account {
    pub fn new(since: Moment) -> Self {
        let (budgets, route_calls) = (Mutex::default(), Mutex::default());
        Self { since, names: NameTable::default(), budgets, route_calls, is_revoked: AtomicBool::new(false) }
    }

    /// What is left under one grant. A reload changes the limits, not what was used.
    pub fn budget(&self, grant: &GrantView) -> Arc<GrantBudget> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(budgets.entry(Arc::clone(&grant.name)).or_default())
    }

    /// Takes one of the calls that a rule gives to a route of it.
    ///
    /// # Errors
    /// `budget_exhausted`
    pub fn begin_route(&self, rule: &RuleId, limit: u64) -> Result<(), Stop> {
        let mut calls = self.route_calls.lock().unwrap_or_else(PoisonError::into_inner);
        let used = calls.entry(rule.clone()).or_default();
        if *used >= limit {
            return Err(Stop::with(Reason::BudgetExhausted, format!("calls = {limit} of the route")));
        }
        *used += 1;
        Ok(())
    }

    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Acquire)
    }

    pub fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Release);
    }
}

/// The accounts of sessions, by caller and fingerprint.
#[derive(Debug, Default)]
pub struct Sessions {
    open: Mutex<HashMap<Key, Open>>,
}

type Key = (Option<Arc<str>>, Box<str>);

#[derive(Debug)]
struct Open {
    account: Arc<Account>,
    expires_unix_ms: u64,
}

impl Sessions {
    /// The account of this session, made with its first call.
    ///
    /// # Errors
    /// `run_limit`: so many sessions are remembered already. `malformed`: the fingerprint is none.
    pub fn account(
        &self,
        session: &SessionOfCall,
        caller: Option<&Arc<str>>,
        now: Moment,
    ) -> Result<Arc<Account>, Stop> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if session.fingerprint.len() != 64 || !session.fingerprint.bytes().all(hex) {
            return Err(Stop::new(Reason::Malformed, "a session is named by 64 lower-case hex digits"));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let key: Key = (caller.cloned(), session.fingerprint.as_str().into());
        if let Some(found) = open.get(&key)
            && found.expires_unix_ms > now.unix_ms
        {
            return Ok(Arc::clone(&found.account));
        }
        if open.len() >= limits::SESSIONS_REMEMBERED {
            open.retain(|_, session| session.expires_unix_ms > now.unix_ms);
        }
        if open.len() >= limits::SESSIONS_REMEMBERED {
            return Err(Stop::new(Reason::RunLimit, "too many sessions are remembered"));
        }
        let longest = u64::try_from(limits::LONGEST_RUN.as_millis()).unwrap_or(u64::MAX);
        let expires_unix_ms = session.expires_unix_ms.min(now.unix_ms.saturating_add(longest));
        let account = Arc::new(Account::new(now));
        open.insert(key, Open { account: Arc::clone(&account), expires_unix_ms });
        Ok(account)
    }

    /// Takes the grants from the session with this fingerprint; false when there is none.
    pub fn revoke(&self, fingerprint: &str) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = false;
        for (_, session) in open.iter().filter(|((_, name), _)| **name == *fingerprint) {
            session.account.revoke();
            found = true;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn at(unix_ms: u64) -> Moment {
        Moment { unix_ms, instant: Instant::now() }
    }

    fn session(digit: char, expires_unix_ms: u64) -> SessionOfCall {
        SessionOfCall { fingerprint: String::from(digit).repeat(64), expires_unix_ms }
    }

    #[test]
    fn calls_of_a_session_share_an_account_until_its_time_is_over() {
        let sessions = Sessions::default();
        let bot: Arc<str> = Arc::from("bot");
        let account = |name: char, caller: Option<&Arc<str>>, now: u64| {
            sessions.account(&session(name, 5_000), caller, at(now)).unwrap()
        };
        let first = account('a', Some(&bot), 1_000);
        assert!(Arc::ptr_eq(&first, &account('a', Some(&bot), 4_999)));
        assert_eq!(first.since.unix_ms, 1_000);
        assert!(!Arc::ptr_eq(&first, &account('b', Some(&bot), 1_000)), "another session");
        assert!(!Arc::ptr_eq(&first, &account('a', None, 1_000)), "another caller");
        first.revoke();
        assert!(account('a', Some(&bot), 2_000).is_revoked());
        assert!(!account('a', Some(&bot), 5_000).is_revoked(), "its time was over");
    }

    #[test]
    fn sessions_that_are_over_make_room() {
        let sessions = Sessions::default();
        let named = |number: usize, expires_unix_ms| {
            let fingerprint = format!("{number:064x}");
            sessions.account(&SessionOfCall { fingerprint, expires_unix_ms }, None, at(1_000))
        };
        for number in 0..limits::SESSIONS_REMEMBERED {
            named(number, if number == 7 { 1_000 } else { 9_000 }).unwrap();
        }
        assert!(named(limits::SESSIONS_REMEMBERED, 9_000).is_ok());
        assert_eq!(named(limits::SESSIONS_REMEMBERED + 1, 9_000).unwrap_err().reason, Reason::RunLimit);
        for wrong in ["", "A", &"g".repeat(64), &"a".repeat(63)] {
            let wrong = SessionOfCall { fingerprint: wrong.to_owned(), expires_unix_ms: 9_000 };
            assert_eq!(sessions.account(&wrong, None, at(1_000)).unwrap_err().reason, Reason::Malformed);
        }
    }
}
