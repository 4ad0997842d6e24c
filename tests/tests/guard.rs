//! The guard: the explicit proxy over TLS, for sandboxes on other machines. Every attack of the suite is tried by it too
//! (`Way::Guard`); here is what only it has. ATTACKS C32, H37, H38, H40.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freeboard_tests::broker::{GUARD, GUARD_NAME};
use freeboard_tests::expect::{allowed, get};
use freeboard_tests::lab::{C1, Lab, Run, Way};
use freeboard_tests::wait;
use freeboard_tests::wire::Wire;

fn connect(proof: &str) -> String {
    let proof = if proof.is_empty() { String::new() } else { format!("Proxy-Authorization: {proof}\r\n") };
    format!("CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n{proof}\r\n")
}

fn basic(run: &Run<'_>) -> String {
    let bearer = run.guard_proof();
    let (id, token) = bearer.strip_prefix("Bearer ").unwrap().split_once('.').unwrap();
    format!("Basic {}", STANDARD.encode(format!("{id}:{token}")))
}

#[test]
fn c32_nobody_without_a_runs_own_credential_gets_anything() {
    let Some(lab) = Lab::start() else { return };
    let (run, other) = (lab.run(&["items"]), lab.run(&["pub"]));
    let (mine, others) = (run.guard_proof(), other.guard_proof());
    let token = |proof: &str| proof.split_once('.').unwrap().1.to_owned();
    let mut wire = run.guard().unwrap();
    for proof in [
        String::new(),
        "Bearer nonsense".to_owned(),
        format!("Bearer {}.", run.id),
        format!("Bearer {}.{}x", run.id, token(&mine)),
        format!("Bearer {}.{}", run.id, token(&others)),
        format!("Bearer {}.{}", "0".repeat(32), token(&mine)),
        format!("Digest {}", token(&mine)),
    ] {
        // H38: 407, and the connection stays usable for the next try.
        let answer = wire.ask(connect(&proof)).answer();
        assert_eq!(
            (answer.status, answer.reason().as_deref()),
            (407, Some("proxy_auth_required")),
            "{proof}"
        );
        assert!(answer.field("proxy-authenticate").is_some());
    }
    assert_eq!(wire.ask(connect(&basic(&run))).status(), Some(200), "H37: as a user name and a password");
    // A connection is one run's: another's credential on it is refused.
    let mut wire = run.guard().unwrap();
    let absolute = |host: &str, proof: &str| {
        format!(
            "GET https://{host}/v1/items/1 HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: {proof}\r\n\r\n"
        )
    };
    assert_eq!(wire.ask(absolute("api.test", &mine)).status(), Some(200));
    assert_eq!(wire.ask(absolute("pub.test", &others)).status(), Some(400));
    assert_eq!(lab.upstream.take().len(), 1);
}

#[test]
fn a_run_on_another_machine_is_served_like_any_other_and_its_credential_goes_no_further() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    let (_, recorded) = allowed(&run, Way::Guard, "api.test", get("api.test", "/v1/items/1"));
    assert_eq!(recorded.field("authorization").unwrap(), format!("Bearer {C1}"));
    assert!(recorded.field("proxy-authorization").is_none(), "{recorded:?}");
    let record = &run.decisions(1)[0];
    assert_eq!((&record["door"], &record["run"]), (&"guard".into(), &run.id.as_str().into()), "{record:#}");
    // Absolute form, without a tunnel.
    let request = format!(
        "GET https://api.test/v1/items/2 HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: {}\r\n\r\n",
        run.guard_proof()
    );
    assert_eq!(run.guard().unwrap().ask(request).status(), Some(200));
    let recorded = lab.upstream.take();
    assert!(recorded[0].field("proxy-authorization").is_none(), "{recorded:?}");
    let proof = run.guard_proof();
    let token = proof.split_once('.').unwrap().1;
    for (place, bytes) in
        [("the audit log", lab.audit.text().into_bytes()), ("the output", lab.broker.output())]
    {
        assert!(!String::from_utf8_lossy(&bytes).contains(token), "{place}");
    }
}

#[test]
fn a_credential_ends_with_its_run_and_cuts_what_it_opened() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    let proof = run.guard_proof();
    let mut open = run.tls(Way::Guard, "api.test");
    assert_eq!(open.ask(get("api.test", "/v1/items/1")).status(), Some(200));
    let mut waiting = run.guard().unwrap();
    run.close();
    assert!(open.ask(get("api.test", "/v1/items/2")).status().is_none(), "the tunnel is cut");
    assert_eq!(waiting.ask(connect(&proof)).status(), Some(407));
    assert_eq!(lab.upstream.take().len(), 1);
}

#[test]
fn the_guard_shows_its_own_certificate_and_speaks_nothing_but_tls() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    let dial = || Wire::clear(lab.world().connect(GUARD.parse().unwrap()).unwrap());
    let interception = dial().start_tls(GUARD_NAME, &run.ca_pem, &[b"http/1.1"]);
    assert!(interception.is_err(), "it is not of the interception CA");
    assert!(dial().start_tls("api.test", lab.upstream.ca().pem(), &[b"http/1.1"]).is_err(), "another name");
    assert!(dial().ask(connect(&run.guard_proof())).status().is_none(), "nothing in the clear");
    wait::until_true("the failed handshakes are in the log", || {
        let of_guard = |record: &serde_json::Value| record["kind"] == "tls" && record["door"] == "guard";
        lab.audit.records().iter().filter(|record| of_guard(record)).count() >= 3
    });
    assert_eq!(lab.upstream.connections(), 0);
}
