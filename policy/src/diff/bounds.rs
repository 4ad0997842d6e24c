//! What changes of the grant itself: floor, times and budgets.

use super::confirm::Run;
use super::grants::{self, Pair};
use super::rules::{self, Found};
use super::{Change, Direction, Kind, Risk};
use crate::model::GrantView;
use crate::{Tier, Window};

/// Differences of the grant itself.
pub(super) fn of_grant(pair: &Pair<'_>, changes: &mut Vec<Change>) {
    let (Some(old), Some(new)) = (pair.old, pair.new) else { return };
    let mut found = bounds(&old.view, &new.view);
    if old.view.floor != new.view.floor {
        let word = |floor: Option<Tier>| floor.map_or("none", Tier::word).to_owned();
        let weaker = new.view.floor < old.view.floor;
        found.push((Kind::Floor, weaker, "floor".to_owned(), word(old.view.floor), word(new.view.floor)));
    }
    if found.is_empty() {
        return;
    }
    let callers = pair.kept_callers();
    let shared = pair
        .hosts()
        .into_iter()
        .filter_map(|(host, port, old, new)| rules::kept(&old, &new).map(|request| (host, port, request)));
    let shared =
        shared.min_by_key(|(host, _, found)| grants::length(found).saturating_add(host.as_str().len()));
    for (kind, wider, what, before, after) in found {
        let mut change = pair.change(kind, &callers, &what, &[]);
        change.direction = if wider { Direction::Wider } else { Direction::Narrower };
        change.before = Some(before);
        change.after = Some(after);
        if kind == Kind::Floor && wider {
            change.risks.push(Risk::WeakerFloor);
        }
        if let Some((host, port, found)) = &shared {
            if let (Kind::Floor, Found::Request(request) | Found::Conditional(request)) = (kind, found) {
                let caller = pair.representative(&change.callers);
                let run = Run {
                    caller: &caller,
                    grants: &[pair.name],
                    tier: between(old.view.floor, new.view.floor),
                };
                change.witness = Some(run.ask(pair.policies, host, *port, request, None));
            } else {
                pair.show(&mut change, &[pair.name], host, *port, found);
            }
        }
        changes.push(change);
    }
}

/// The strongest tier that only one of two floors accepts.
fn between(old: Option<Tier>, new: Option<Tier>) -> Option<Tier> {
    let strongest = old.max(new)?;
    Tier::ALL.into_iter().filter(|tier| *tier < strongest).max()
}

/// Whether the grant works in some minute of the week in which it did not.
fn opens_more(old: &[Window], new: &[Window]) -> bool {
    const MINUTES_PER_WEEK: i64 = 7 * 24 * 60;
    let open = |schedule: &[Window], minute: i64| {
        schedule.is_empty() || schedule.iter().any(|window| window.is_open(minute * 60))
    };
    (0..MINUTES_PER_WEEK).any(|minute| open(new, minute) && !open(old, minute))
}

/// (kind, is it wider, what, before, after)
type Bound = (Kind, bool, String, String, String);

fn bounds(old: &GrantView, new: &GrantView) -> Vec<Bound> {
    let mut found = Vec::new();
    // Whoever adds a field compares it here; the name is the same and the floor is compared by the caller.
    let GrantView {
        name: _,
        floor: _,
        ttl_seconds: _,
        expires_unix: _,
        not_before_unix: _,
        schedule: _,
        sessions: _,
        calls: _,
        per_minute: _,
        caller_per_minute: _,
        concurrent: _,
        request_bytes: _,
        response_bytes: _,
    } = old;
    // Nothing is no bound for these: more time.
    let mut time = |what: &str, old: Option<i128>, new: Option<i128>, shown: fn(i128) -> String| {
        if old != new {
            let wider = match (old, new) {
                (Some(old), Some(new)) => new > old,
                (before, _) => before.is_some(),
            };
            let shown = |value: Option<i128>| value.map_or("none".to_owned(), shown);
            found.push((Kind::Time, wider, what.to_owned(), shown(old), shown(new)));
        }
    };
    time("ttl", old.ttl_seconds.map(i128::from), new.ttl_seconds.map(i128::from), |seconds| {
        format!("{seconds}s")
    });
    time("expires", old.expires_unix.map(i128::from), new.expires_unix.map(i128::from), |end| {
        i64::try_from(end).map_or_else(|_| end.to_string(), crate::units::last_day)
    });
    if old.not_before_unix != new.not_before_unix {
        let wider = new.not_before_unix < old.not_before_unix;
        // The day after the last one on which it does not work.
        let shown =
            |start: Option<i64>| start.map_or("none".to_owned(), |start| crate::units::last_day(start + 1));
        let (before, after) = (shown(old.not_before_unix), shown(new.not_before_unix));
        found.push((Kind::Time, wider, "not_before".to_owned(), before, after));
    }
    if old.schedule != new.schedule {
        let shown = |schedule: &[Window]| match schedule {
            [] => "always".to_owned(),
            windows => windows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let wider = opens_more(&old.schedule, &new.schedule);
        found.push((Kind::Time, wider, "schedule".to_owned(), shown(&old.schedule), shown(&new.schedule)));
    }
    if old.sessions != new.sessions {
        let (before, after) = (old.sessions.to_string(), new.sessions.to_string());
        found.push((Kind::Sessions, new.sessions, "sessions".to_owned(), before, after));
    }
    let budgets = [
        ("calls", old.calls, new.calls),
        ("per_minute", old.per_minute, new.per_minute),
        ("caller_per_minute", old.caller_per_minute, new.caller_per_minute),
        ("concurrent", old.concurrent, new.concurrent),
        ("request_bytes", old.request_bytes, new.request_bytes),
        ("response_bytes", old.response_bytes, new.response_bytes),
    ];
    for (what, old, new) in budgets.into_iter().filter(|(_, old, new)| old != new) {
        // Nothing is the broker's own default, which is not known here: wider, to be on the safe side.
        let wider = old.zip(new).is_none_or(|(old, new)| new > old);
        let shown =
            |value: Option<u64>| value.map_or("default of the broker".to_owned(), |value| value.to_string());
        found.push((Kind::Budget, wider, format!("budget.{what}"), shown(old), shown(new)));
    }
    found
}
