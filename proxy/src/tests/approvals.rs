//! Rules that want a person to say yes: held, decided, timed out, withdrawn.

use std::time::Duration;

use freeboard_control::PendingApproval;
use freeboard_policy::Policy;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::lab::{Lab, PATIENCE, ok, read_all};
use crate::approvals::DecideError;

const RULES: &str = r#"
[[grant.g.allow]]
api = "api"
routes = ["DELETE /v1/items/*"]
approve = { by = ["alice", "bob"], timeout = "2s" }
"#;

const DELETE: &str = "DELETE /v1/items/7 HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n";

async fn waiting(lab: &Lab) -> PendingApproval {
    let wait = async {
        loop {
            if let Some(one) = lab.client.broker.approvals.list().pop() {
                return one;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("the request waits")
}

/// Sends the request and does `meanwhile` while it waits.
async fn ask(lab: &Lab, meanwhile: impl AsyncFnOnce(PendingApproval)) -> String {
    let mut stream = lab.tunnel("api.test", "api.test").await;
    stream.write_all(&lab.raw(DELETE)).await.unwrap();
    meanwhile(waiting(lab).await).await;
    read_all(&mut stream).await
}

#[tokio::test]
async fn a_request_goes_on_once_a_named_person_approves() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let approvals = &lab.client.broker.approvals;
    let answer = ask(&lab, async |one| {
        assert_eq!(
            (one.method.as_str(), one.path.as_str(), one.grant.as_str()),
            ("DELETE", "/v1/items/7", "g")
        );
        assert_eq!(one.by, ["alice", "bob"]);
        assert_eq!(lab.upstream_connections(), 0, "nothing goes on before");
        assert_eq!(approvals.decide(one.id, true, "mallory"), Err(DecideError::NotAllowed));
        assert_eq!(approvals.decide(one.id, true, "a b"), Err(DecideError::BadName));
        assert_eq!(approvals.decide(one.id + 1, true, "alice"), Err(DecideError::NotWaiting));
        approvals.decide(one.id, true, "alice").unwrap();
        assert_eq!(approvals.decide(one.id, true, "alice"), Err(DecideError::NotWaiting));
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(approvals.list().is_empty());
    assert_eq!(lab.wait_for_records(1).await, ["allowed"]);
}

#[tokio::test]
async fn no_is_no_whoever_says_it() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let answer =
        ask(&lab, async |one| lab.client.broker.approvals.decide(one.id, false, "carol").unwrap()).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("approval_denied"), "{answer}");
    assert_eq!(lab.upstream_connections(), 0);
    assert_eq!(lab.wait_for_records(1).await, ["denied approval_denied"]);
}

#[tokio::test]
async fn silence_is_a_refusal_after_the_time_of_the_rule() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let answer = ask(&lab, async |_| {}).await;
    assert!(answer.contains("approval_timeout"), "{answer}");
    assert!(lab.client.broker.approvals.list().is_empty());
    assert_eq!(lab.upstream_connections(), 0);
}

#[tokio::test]
async fn a_reload_and_the_end_of_the_run_end_the_wait() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let answer = ask(&lab, async |_| lab.replace_policy(Policy::deny_all())).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(lab.client.broker.approvals.list().is_empty());
    let lab = Lab::with_rules(ok, "", RULES).await;
    ask(&lab, async |_| drop(lab.client.broker.runs.end(&lab.client.run.id))).await;
    let wait = async {
        while !lab.client.broker.approvals.list().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap();
    assert_eq!(lab.upstream_connections(), 0);
}

#[tokio::test]
async fn no_ends_the_wait_of_a_guest_that_has_left() {
    let lab = Lab::with_rules(ok, "", RULES.replace("2s", "1h").as_str()).await;
    let mut stream = lab.clear();
    let request = DELETE.replace("DELETE /v1", "DELETE https://api.test:PORT/v1");
    stream.write_all(&lab.raw(&request)).await.unwrap();
    let one = waiting(&lab).await;
    drop(stream);
    // HTTP/1.1 tells nobody that a guest has gone while nothing is read: somebody's word ends the wait.
    lab.client.broker.approvals.decide(one.id, false, "alice").unwrap();
    assert_eq!(lab.wait_for_records(1).await.len(), 1);
    assert_eq!(lab.upstream_connections(), 0);
}
