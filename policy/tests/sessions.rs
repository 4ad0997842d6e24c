//! Grants that are for sessions, and those that are not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use freeboard_policy::diff::{Diff, Direction, Kind};
use freeboard_policy::{Policy, Reason, ScopeQuestion, SourceFile, render_all};

const POLICY: &str = r#"
[api.one]
origins = ["https://one.test:8443", "https://one.test"]

[api.two]
origins = ["https://two.test:9443"]

[grant.yes]
callers = ["bot"]
sessions = true
expires = 2027-01-31
[[grant.yes.allow]]
api = "one"
routes = ["GET /a"]

[grant.no]
callers = ["bot"]
sessions = false
[[grant.no.allow]]
api = "two"
routes = ["GET /a"]

[grant.extended]
callers = ["other"]
extends = "yes"
"#;

fn load(text: &str) -> Policy {
    let files = [SourceFile::new("policy.toml", text)];
    Policy::load(&files).unwrap_or_else(|problems| panic!("{}", render_all(&problems))).policy
}

fn scope(policy: &Policy, caller: &str, grant: &str, session: bool) -> Option<Reason> {
    let grants = [grant.to_owned()];
    let question =
        ScopeQuestion { caller: Some(caller), grants: &grants, tier: None, session, now_unix: 1_800_000_000 };
    policy.scope(&question).err().map(|refusal| refusal.reason)
}

#[test]
fn only_a_grant_that_says_so_is_for_sessions() {
    let policy = load(POLICY);
    for grant in ["yes", "no"] {
        assert_eq!(scope(&policy, "bot", grant, false), None);
    }
    assert_eq!(scope(&policy, "bot", "yes", true), None);
    let unknown = scope(&policy, "bot", "nothing", true);
    assert_eq!(unknown, Some(Reason::GrantNotAvailable));
    assert_eq!(scope(&policy, "bot", "no", true), unknown, "the same words");
    assert_eq!(scope(&policy, "other", "extended", false), None);
    assert_eq!(scope(&policy, "other", "extended", true), unknown, "whoever extends a grant says it again");
}

#[test]
fn a_session_gets_the_ports_of_every_grant_that_its_calls_may_name() {
    let policy = load(POLICY);
    assert_eq!(policy.session_ports(Some("bot")), [443, 8443]);
    assert!(policy.session_ports(Some("other")).is_empty());
    assert!(policy.session_ports(None).is_empty());
}

#[test]
fn it_is_off_where_nothing_is_said_and_then_changes_no_digest() {
    let without = POLICY.replace("sessions = false\n", "");
    assert_ne!(without, POLICY);
    assert_eq!(load(&without).digest(), load(POLICY).digest());
    let opened = POLICY.replace("sessions = false", "sessions = true");
    assert_ne!(load(&opened).digest(), load(POLICY).digest());
}

#[test]
fn a_reviewer_sees_it_change() {
    let opened = POLICY.replace("sessions = false", "sessions = true");
    for (old, new, direction) in
        [(POLICY, &*opened, Direction::Wider), (&*opened, POLICY, Direction::Narrower)]
    {
        let diff = Diff::between(&load(old), &load(new));
        let change = match &diff.changes[..] {
            [change] => change,
            changes => panic!("{changes:#?}"),
        };
        assert_eq!((change.kind, change.direction), (Kind::Sessions, direction));
        assert_eq!(&*change.grant, "no");
    }
}
