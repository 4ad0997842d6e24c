//! Floods, torn ends and rotation of the log, without a process.

use std::sync::Arc;
use std::time::Duration;

use freeboard_audit::{Decided, Entry, Event, RunIdentity, Verdict};
use freeboard_policy::Reason;

use super::files::log_files;
use super::flood::Flood;
use super::log::{Log, LogSettings};
use crate::limits::{FLOOD_KEYS, REFUSALS_WRITTEN_EACH};

fn entry(host: &str, verdict: Verdict) -> Entry {
    let decided = Decided {
        request_id: "r".into(),
        verdict,
        reason: (verdict != Verdict::Allowed).then_some(Reason::HostNotGranted),
        grant: None,
        rule: None,
        api: None,
        credential: None,
        approved_by: None,
        door: "proxy",
        protocol: "http/1.1",
        method: "CONNECT".into(),
        host: host.into(),
        port: 443,
        path: Box::default(),
        status: Some(403),
        upstream_status: None,
        upstream: None,
        request_bytes: 0,
        response_bytes: 0,
        duration_us: 1,
        upstream_us: None,
        uninspected: false,
        stripped: Box::default(),
        detail: None,
    };
    let run = RunIdentity {
        run: "run".into(),
        caller: None,
        tier: None,
        provider: None,
        trace_id: None,
        session: None,
    };
    Entry { policy: None, run: Some(Arc::new(run)), event: Event::Tunnel(decided) }
}

fn settings(folder: &std::path::Path) -> LogSettings {
    LogSettings {
        folder: folder.to_owned(),
        file_bytes: 4096,
        keep_files: None,
        sync_every: Duration::from_secs(1),
    }
}

#[test]
fn e23_a_flood_keeps_first_last_and_count() {
    let mut flood = Flood::default();
    let total = 1_000_000_u64;
    let written = (0..total)
        .filter(|at| flood.admit(*at / 1000, entry("evil.test", Verdict::Denied)).is_some())
        .count();
    assert_eq!(u64::try_from(written).unwrap(), REFUSALS_WRITTEN_EACH);
    assert!(flood.close(9_999, false).is_empty(), "the window is still open");
    let rest = flood.close(10_000, false);
    let [(_, counted), (last_at, last)] = rest.as_slice() else { panic!("{rest:?}") };
    let Event::Suppressed(suppressed) = &counted.event else { panic!("{counted:?}") };
    assert_eq!(suppressed.count + REFUSALS_WRITTEN_EACH + 1, total, "every one is accounted for");
    assert_eq!(suppressed.host.as_deref(), Some("evil.test"));
    assert_eq!((*last_at, last.event.decided().is_some()), (999, true));
    assert!(flood.is_empty());
}

#[test]
fn e23_only_refusals_are_ever_counted_together() {
    let mut flood = Flood::default();
    for verdict in [Verdict::Allowed, Verdict::Failed, Verdict::Shed] {
        for _ in 0..REFUSALS_WRITTEN_EACH * 3 {
            assert!(flood.admit(0, entry("api.test", verdict)).is_some());
        }
    }
    assert!(flood.is_empty());
}

#[test]
fn e23_invented_names_take_bounded_memory_and_none_is_lost() {
    let mut flood = Flood::default();
    let total = u64::try_from(FLOOD_KEYS).unwrap() + 5000;
    let mut written = 0;
    for number in 0..total {
        written += u64::from(flood.admit(0, entry(&format!("{number}.test"), Verdict::Denied)).is_some());
    }
    let mut counted = 0;
    for (_, entry) in flood.close(0, true) {
        match entry.event {
            Event::Suppressed(suppressed) => counted += suppressed.count,
            _ => counted += 1,
        }
    }
    assert_eq!(written + counted, total);
    assert!(written <= u64::try_from(FLOOD_KEYS).unwrap() + REFUSALS_WRITTEN_EACH);
}

#[test]
fn a_clock_that_is_set_back_does_not_keep_a_window_open() {
    let mut flood = Flood::default();
    for _ in 0..REFUSALS_WRITTEN_EACH + 2 {
        let _ = flood.admit(1_000_000, entry("evil.test", Verdict::Denied));
    }
    assert_eq!(flood.close(0, false).len(), 2);
}

#[test]
fn a_last_line_that_lacks_only_its_line_feed_is_ended_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(settings(folder.path()), 0).unwrap();
    log.append(0, &entry("a.test", Verdict::Allowed)).unwrap();
    log.flush().unwrap();
    let head = log.chain.head();
    drop(log);
    let path = folder.path().join("audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.trim_end()).unwrap();
    let log = Log::open(settings(folder.path()), 0).unwrap();
    assert_eq!((log.chain.seq(), log.chain.head()), (1, head));
    drop(log);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn old_files_are_removed_only_where_configured_and_the_chain_goes_on() {
    for (keep, left) in [(None, 6), (Some(2), 3)] {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path());
        settings.keep_files = keep;
        let mut log = Log::open(settings.clone(), 0).unwrap();
        while log.chain.seq() < 90 {
            log.append(0, &entry("a.test", Verdict::Allowed)).unwrap();
            log.flush().unwrap();
        }
        let files = log_files(folder.path()).unwrap();
        assert!(files.len() >= left && (keep.is_none() || files.len() == left), "{files:?}");
        drop(log);
        assert_eq!(Log::open(settings, 0).unwrap().chain.seq(), 90);
    }
}

#[test]
fn a_crash_between_closing_a_file_and_beginning_the_next_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(settings(folder.path()), 0).unwrap();
    log.append(0, &entry("a.test", Verdict::Allowed)).unwrap();
    log.flush().unwrap();
    drop(log);
    let current = folder.path().join("audit.jsonl");
    let full = folder.path().join(super::files::rotated_name(1));
    std::fs::hard_link(&current, &full).unwrap();
    // Both names: the rotation is finished when the file is full again. Only the full one: a new file is begun.
    std::fs::remove_file(&current).unwrap();
    let mut log = Log::open(settings(folder.path()), 0).unwrap();
    log.append(0, &entry("a.test", Verdict::Allowed)).unwrap();
    log.flush().unwrap();
    assert_eq!(log.chain.seq(), 2);
    assert!(std::fs::read_to_string(&current).unwrap().starts_with("{\"seq\":2,"));
}

/// E15, E19: a new file cannot be begun, for lack of descriptors or inodes. The same state as after the full one has got its name.
#[test]
fn a_new_file_that_cannot_be_begun_is_begun_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(settings(folder.path()), 0).unwrap();
    while std::fs::metadata(folder.path().join("audit.jsonl")).unwrap().len() < 3500 {
        log.append(0, &entry("a.test", Verdict::Allowed)).unwrap();
        log.flush().unwrap();
    }
    let current = folder.path().join("audit.jsonl");
    std::fs::hard_link(&current, folder.path().join(super::files::rotated_name(1))).unwrap();
    std::fs::remove_file(&current).unwrap();
    let written = log.chain.seq();
    while log.chain.seq() < written + 10 {
        log.append(0, &entry("a.test", Verdict::Allowed)).unwrap();
        log.flush().unwrap();
    }
    assert_eq!(log_files(folder.path()).unwrap().len(), 2);
    drop(log);
    let log = Log::open(settings(folder.path()), 0).unwrap();
    assert_eq!(log.chain.seq(), written + 10);
    // A log that somebody took away is none to go on with.
    drop(log);
    let mut log = Log::open(settings(folder.path()), 0).unwrap();
    std::fs::remove_file(&current).unwrap();
    log.append(0, &entry(&"a".repeat(5000), Verdict::Allowed)).unwrap();
    assert!(log.flush().is_err());
}

#[test]
fn a_recorder_without_a_log_refuses() {
    let recorder = super::Recorder::default();
    assert_eq!(recorder.reserve().unwrap_err(), Reason::AuditUnavailable);
    assert!(!recorder.state().writable);
}

#[test]
fn room_is_taken_before_and_given_back_after() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, writer) = super::Recorder::start(settings(folder.path()), crate::broker::Clock).unwrap();
    let slots: Vec<_> = std::iter::from_fn(|| recorder.reserve().ok()).collect();
    assert_eq!(slots.len(), crate::limits::AUDIT_QUEUE);
    assert_eq!(recorder.reserve().unwrap_err(), Reason::AuditUnavailable);
    drop(slots);
    assert!(recorder.reserve().is_ok());
    writer.stop();
}

#[test]
fn e23_refusals_leave_room_for_requests() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, writer) = super::Recorder::start(settings(folder.path()), crate::broker::Clock).unwrap();
    let shared = &recorder.queue.as_ref().unwrap().shared;
    let refusals: Vec<_> =
        std::iter::from_fn(|| shared.take(crate::limits::AUDIT_QUEUE_FOR_REQUESTS)).collect();
    assert_eq!(refusals.len(), crate::limits::AUDIT_QUEUE - crate::limits::AUDIT_QUEUE_FOR_REQUESTS);
    assert!(recorder.reserve().is_ok());
    drop(refusals);
    writer.stop();
}
