//! Sessions of `native`: what stays between two calls, and what does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_sandboxd::job::{Ending, Job, JobFile, Language, NoSink, Payload};
use freeboard_sandboxd::provider::native::{NativeConfig, NativeProvider};
use freeboard_sandboxd::provider::{CallFailure, Called, Cancel, Over, Plan, Provider, Session};

use crate::support::{count_running, first, job, shell, wait_until, with_provider};

async fn open(provider: &NativeProvider) -> Box<dyn Session> {
    let plan = Plan { job: job(Payload::Session), prepared: None };
    let mut sandbox = provider.create(&plan).await.unwrap();
    let evidence = sandbox.measure().await.unwrap();
    assert!(evidence.facts.iter().all(|fact| fact.met));
    sandbox.into_session().await.unwrap()
}

fn in_session(test: impl AsyncFnOnce(Box<dyn Session>)) {
    with_provider(NativeConfig::default(), async |provider| test(open(&provider).await).await);
}

async fn call(session: &mut dyn Session, job: Job) -> Called {
    session.read_back().unwrap();
    session.call(job, Cancel::default(), Arc::new(NoSink)).await.unwrap()
}

fn cell(language: Language, code: &str) -> Job {
    job(Payload::Cell { language, code: code.into() })
}

fn python(code: &str) -> Job {
    cell(Language::Python, code)
}

fn javascript(code: &str) -> Job {
    cell(Language::JavaScript, code)
}

fn with_file(mut job: Job, path: &str, content: &str) -> Job {
    job.files.push(JobFile { path: path.into(), content: content.into() });
    job
}

/// Exit code and output.
async fn said(session: &mut dyn Session, job: Job) -> (i32, String) {
    let called = call(session, job).await;
    assert_eq!(called.over, None);
    let (code, stdout, stderr) = first(&called.outcome);
    (code, if code == 0 { stdout } else { stderr })
}

#[test]
fn files_and_state_stay_from_call_to_call() {
    in_session(async |mut session| {
        let session = session.as_mut();
        let called = call(session, with_file(python("x = open('in.txt').read()"), "in.txt", "data")).await;
        assert!(called.cell.started && !called.cell.ended);
        let called = call(session, python("x + '!'")).await;
        assert!(!called.cell.started && !called.cell.ended);
        assert_eq!(first(&called.outcome).1, "'data!'\n");
        assert_eq!(
            said(session, javascript("let y = 1; const z = await 41; y + z")).await,
            (0, "42\n".into())
        );
        assert_eq!(said(session, javascript("let y = 2; y")).await, (0, "2\n".into()), "redeclared");
        assert_eq!(said(session, shell("cat in.txt; echo more > in.txt")).await, (0, "data".into()));
        let snippet =
            Payload::JavaScript { code: "console.log(require('fs').readFileSync('in.txt', 'utf8'))".into() };
        assert_eq!(said(session, job(snippet)).await, (0, "more\n\n".into()));
        assert_eq!(said(session, python("x")).await, (0, "'data'\n".into()), "other calls cost no state");
        assert_eq!(said(session, with_file(shell("cat in.txt"), "in.txt", "new")).await, (0, "new".into()));
    });
}

#[test]
fn a_raising_cell_ends_with_1_and_keeps_the_state() {
    in_session(async |mut session| {
        let session = session.as_mut();
        for (define, raise, get) in [
            (python("k = 5"), python("def f():\n    raise KeyError('meant')\nf()"), python("k")),
            (javascript("var k = 5"), javascript("throw new TypeError('meant')"), javascript("k")),
        ] {
            call(session, define).await;
            let (code, text) = said(session, raise).await;
            assert_eq!(code, 1);
            assert!(
                text.contains("meant") && !text.contains("freeboard") && !text.contains("Session.post"),
                "{text}"
            );
            assert_eq!(said(session, get).await, (0, "5\n".into()));
        }
        let (code, text) = said(session, python("1 +")).await;
        assert!(code == 1 && text.contains("SyntaxError"), "{text}");
        assert_eq!(said(session, python("import sys; sys.exit(0)")).await, (0, String::new()));
        assert_eq!(said(session, python("k")).await, (0, "5\n".into()), "exit ends the cell, not the state");
    });
}

#[test]
fn a_spinning_cell_ends_at_its_deadline_and_the_next_has_a_fresh_interpreter() {
    in_session(async |mut session| {
        let session = session.as_mut();
        for (define, spin, get) in [
            (python("v = 1"), python("while True: pass"), python("'v' in globals()")),
            (javascript("globalThis.v = 1"), javascript("for (;;);"), javascript("'v' in globalThis")),
        ] {
            call(session, define).await;
            let called = call(session, Job { timeout: Duration::from_millis(300), ..spin }).await;
            assert_eq!((called.outcome.ending, called.outcome.steps[0].exit_code), (Ending::TimedOut, 124));
            assert!(called.cell.ended && !called.cell.started);
            let called = call(session, get).await;
            assert!(called.cell.started);
            assert!(matches!(first(&called.outcome).1.as_str(), "False\n" | "false\n"));
        }
    });
}

#[test]
fn an_interpreter_that_ends_says_how() {
    in_session(async |mut session| {
        let session = session.as_mut();
        let called = call(session, python("import os; os._exit(7)")).await;
        assert!(called.cell.started && called.cell.ended);
        assert_eq!(first(&called.outcome).0, 7);
        let called = call(session, python("os.kill(os.getpid(), 9)")).await;
        assert_eq!(
            (first(&called.outcome).0, called.cell.started),
            (1, true),
            "a fresh one does not know os"
        );
        let called = call(session, python("import os; os.kill(os.getpid(), 9)")).await;
        assert_eq!((first(&called.outcome).0, called.cell.ended), (137, true));
        // Killed from a call of another kind.
        call(session, python("import os; open('pid', 'w').write(str(os.getpid()))")).await;
        assert_eq!(said(session, shell("kill -9 $(cat pid)")).await.0, 0);
        assert!(call(session, python("1")).await.cell.started);
    });
}

#[test]
fn a_call_leaves_no_process_behind() {
    in_session(async |mut session| {
        let session = session.as_mut();
        call(session, python("import subprocess")).await;
        let leave = "sleep 8641 & (setsid sleep 8641 &) ; (trap '' TERM HUP CONT; sleep 8641) & exit 0";
        assert_eq!(said(session, shell(leave)).await.0, 0);
        assert_eq!(count_running("sleep 8641"), 0);
        assert_eq!(said(session, python("subprocess.Popen(['sleep', '8642']); 1")).await, (0, "1\n".into()));
        wait_until("the interpreter's child is gone", || count_running("sleep 8642") == 0);
        assert_eq!(
            said(session, python("subprocess is not None")).await,
            (0, "True\n".into()),
            "it lives on"
        );
        // A bomb that would stay ahead of whoever kills one by one.
        let bomb = "for i in 1 2 3 4 5 6; do (while :; do sleep 0.01 & wait; done) & done; exit 0";
        assert_eq!(said(session, shell(bomb)).await.0, 0);
        assert_eq!(count_running("sleep 0.01"), 0);
        assert_eq!(said(session, python("subprocess is not None")).await, (0, "True\n".into()));
    });
}

#[test]
fn between_two_calls_an_interpreter_does_not_run() {
    in_session(async |mut session| {
        let session = session.as_mut();
        let thread = "import threading, time\nn = 0\ndef count():\n    global n\n    while True:\n        n += 1\n        \
                      time.sleep(0.005)\nthreading.Thread(target=count, daemon=True).start()";
        call(session, python(thread)).await;
        let number = async |session: &mut dyn Session| {
            said(session, python("n")).await.1.trim().parse::<u32>().unwrap()
        };
        let before = number(session).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let after = number(session).await;
        assert!(after - before < 50, "{before} {after}: a hundred, had it run all the time");
    });
}

#[test]
fn a_process_that_hides_ends_the_session() {
    in_session(async |mut session| {
        let session = session.as_mut();
        // Only where something is kept is it looked for; PR_SET_DUMPABLE = 0 hides it from the processes of its user.
        let hide = "import ctypes, os, time\nif os.fork() == 0:\n    ctypes.CDLL(None).prctl(4, 0)\n    \
                    time.sleep(600)\ntime.sleep(0.3)";
        let called = call(session, python(hide)).await;
        assert_eq!(called.over, Some(Over::BoundaryFailed));
    });
}

#[test]
fn a_cells_files_that_cannot_be_placed_refuse_it_and_touch_no_state() {
    in_session(async |mut session| {
        let session = session.as_mut();
        call(session, python("import os; os.mkdir('taken'); state = 1")).await;
        session.read_back().unwrap();
        let refused = with_file(python("state = 2"), "taken", "x");
        let failure = session.call(refused, Cancel::default(), Arc::new(NoSink)).await.unwrap_err();
        assert!(matches!(&failure, CallFailure::Files(text) if text.contains("taken")), "{failure}");
        assert_eq!(said(session, python("state")).await, (0, "1\n".into()));
        // A link is replaced, not followed.
        call(session, shell("ln -s /work/taken link; mkfifo pipe")).await;
        let job = with_file(with_file(shell("cat link pipe"), "link", "a"), "pipe", "b");
        assert_eq!(said(session, job).await, (0, "ab".into()));
    });
}

#[test]
fn a_call_that_nobody_waits_for_ends_early_and_the_session_goes_on() {
    in_session(async |mut session| {
        let session = session.as_mut();
        // Or the first of them is given up before its interpreter is ready, which refuses it.
        assert_eq!(said(session, python("1")).await.0, 0);
        for endless in [
            python("import time\nwhile True: time.sleep(1)"),
            shell("sleep 100"),
            shell("echo a; sleep 9 | cat"),
        ] {
            let cancel = Cancel::default();
            let began = Instant::now();
            let later = Arc::clone(&cancel);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(200)).await;
                later.notify_one();
            });
            let called = session.call(endless, cancel, Arc::new(NoSink)).await.unwrap();
            assert!(called.outcome.steps[0].timed_out);
            assert!(began.elapsed() < Duration::from_secs(10));
            assert_eq!(said(session, shell("echo on")).await, (0, "on\n".into()));
        }
    });
}

#[test]
fn suspending_keeps_files_and_ends_interpreters() {
    in_session(async |mut session| {
        let session = session.as_mut();
        call(session, with_file(python("state = 1"), "kept", "kept")).await;
        session.suspend().await.unwrap();
        assert_eq!(said(session, shell("cat kept")).await, (0, "kept".into()));
        let called = call(session, python("'state' in globals()")).await;
        assert!(called.cell.started);
        assert_eq!(first(&called.outcome).1, "False\n");
    });
}

#[test]
fn the_end_of_a_session_leaves_nothing() {
    in_session(async |mut session| {
        call(
            session.as_mut(),
            python("import os; os.execvp('sleep', ['sleep', '8643']) if os.fork() == 0 else 0"),
        )
        .await;
        session.end().await;
        assert_eq!(count_running("sleep 8643"), 0);
    });
}

#[test]
fn output_of_a_cell_is_cut_and_counted_anew_for_each() {
    in_session(async |mut session| {
        let session = session.as_mut();
        for _ in 0..2 {
            let mut job = python("print('x' * 100)");
            job.output_limit = 10;
            let called = call(session, job).await;
            let step = &called.outcome.steps[0];
            assert_eq!((step.stdout.as_slice(), step.stdout_truncated), (b"xxxxxxxxxx".as_slice(), true));
        }
        let called = call(session, python("print('short')")).await;
        assert!(!called.outcome.steps[0].stdout_truncated);
        assert_eq!(first(&called.outcome).1, "short\n");
    });
}
