//! A session in a kernel of its own: what stays between two calls and what does not.

use std::sync::Arc;

use freeboard_sandboxd::job::{Job, Language, NoSink, Payload};
use freeboard_sandboxd::provider::{Called, Cancel, Provider, Session};

use crate::support::*;

async fn open(provider: &dyn Provider) -> Box<dyn Session> {
    let (sandbox, _) = measured(provider, job(Payload::Session)).await.unwrap();
    sandbox.into_session().await.unwrap()
}

async fn call(session: &mut dyn Session, job: Job) -> Called {
    session.read_back().unwrap();
    session.call(job, Cancel::default(), Arc::new(NoSink)).await.unwrap()
}

pub(crate) async fn output(session: &mut dyn Session, job: Job) -> String {
    let called = call(session, job).await;
    assert_eq!(called.over, None, "{called:?}");
    first(&called.outcome).1
}

fn cell(code: &str) -> Job {
    job(Payload::Cell { language: Language::Python, code: code.into() })
}

#[test]
fn files_and_the_state_of_cells_stay_and_processes_do_not() {
    with_provider(Allowance::default(), async |provider| {
        let mut session = open(provider).await;
        let session = session.as_mut();
        let begin =
            "echo one > file; setsid sleep 300 >/dev/null 2>&1 & (sleep 300 &) >/dev/null 2>&1; echo begun";
        assert_eq!(output(session, shell(begin)).await, "begun\n");
        assert_eq!(
            output(
                session,
                shell("cat file; cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '^300$'; true")
            )
            .await,
            "one\n0\n"
        );
        assert_eq!(output(session, cell("x = 41")).await, "");
        assert_eq!(output(session, cell("x + 1")).await, "42\n");
        assert_eq!(output(session, shell("cat file")).await, "one\n");
        session.suspend().await.unwrap();
        let anew = call(session, cell("'x' in globals()")).await;
        assert_eq!((first(&anew.outcome).1.as_str(), anew.cell.started), ("False\n", true));
        assert_eq!(output(session, shell("cat file")).await, "one\n");
    });
}

#[test]
fn a_call_that_does_not_end_is_ended_and_the_session_goes_on() {
    with_provider(Allowance::default(), async |provider| {
        let mut session = open(provider).await;
        let session = session.as_mut();
        assert_eq!(output(session, shell("echo kept > file")).await, "");
        let mut endless = shell("trap '' TERM; sleep 300");
        endless.timeout = std::time::Duration::from_secs(2);
        let called = call(session, endless).await;
        assert_eq!((called.outcome.steps[0].exit_code, called.over), (124, None), "{called:?}");
        assert_eq!(output(session, shell("cat file")).await, "kept\n");
    });
}
