//! Time, memory, stack and output: each runs out as documented, and the next run is as if nothing had been.

use std::time::{Duration, Instant};

use freeboard_sandboxd::job::Ending;

use crate::harness::{Ran, plan, provider, run, run_plan};

/// Runs `code` with a deadline, then a small program on the same provider.
async fn run_and_run_on(code: &str, timeout: Duration) -> Ran {
    let provider = provider();
    let mut plan_ = plan(code);
    plan_.job.timeout = timeout;
    let ran = run_plan(&provider, plan_).await;
    let next = run_plan(&provider, plan("console.log('still here')")).await;
    assert_eq!(next.stdout(), "still here\n", "after {code}");
    ran
}

#[tokio::test]
async fn f28_every_kind_of_endless_program_ends_at_the_deadline() {
    for code in [
        "console.log('begun'); for (;;);",
        "console.log('begun'); while (true) { try { throw 1 } catch {} }",
        "console.log('begun'); const f = () => Promise.resolve().then(f); f()",
        "console.log('begun'); setInterval(() => {}, 1)",
        "console.log('begun'); /^(a+)+$/.test('a'.repeat(40) + 'b')",
        "console.log('begun'); [...(function* () { for (;;) yield 1 })()].length",
        "console.log('begun'); 'x'.repeat(1e4).split('').sort(() => { for (;;); })",
        "console.log('begun'); await new Promise(r => setTimeout(r, 60000))",
    ] {
        let begun = Instant::now();
        let ran = run_and_run_on(code, Duration::from_millis(400)).await;
        // A generator that is spread fills the memory first.
        let status = ran.step().exit_code;
        if code.contains("yield") {
            assert!(matches!(status, 124 | 137), "{code}: {status}");
            continue;
        }
        assert_eq!(
            (status, ran.step().timed_out, ran.outcome.ending),
            (124, true, Ending::TimedOut),
            "{code}"
        );
        assert_eq!(ran.stdout(), "begun\n", "{code}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{code}");
    }
}

#[tokio::test]
async fn an_endless_recursion_is_an_error_that_programs_can_catch() {
    for code in [
        "function f() { f() } try { f() } catch (e) { console.log(e.name) }",
        "let f = () => [1].map(f); try { f() } catch (e) { console.log(e.name) }",
        "const o = { get x() { return this.x } }; try { o.x } catch (e) { console.log(e.name) }",
        "const p = new Proxy({}, { get(t, k, r) { return r[k] } }); try { p.x } catch (e) { console.log(e.name) }",
        "class A { constructor() { new A() } } try { new A() } catch (e) { console.log(e.name) }",
        "try { new RegExp('('.repeat(100000)) } catch (e) { console.log(e.name) }",
        "const f = (...a) => f(...a, 1, 2, 3, 4, 5, 6, 7, 8); try { f() } catch (e) { console.log(e.name) }",
        "const t = { toString() { return `${t}` } }; try { `${t}` } catch (e) { console.log(e.name) }",
        "let f = async () => { await f() }; try { await f() } catch (e) { console.log(e.name) }",
    ] {
        let ran = run_and_run_on(code, Duration::from_secs(20)).await;
        let name = ran.stdout();
        assert!(
            matches!(name.as_str(), "RangeError\n" | "SyntaxError\n" | "InternalError\n"),
            "{code}: {name:?} {:?}",
            ran.outcome
        );
    }
    let uncaught = run("function f() { f() } f()").await;
    assert_eq!(uncaught.step().exit_code, 1);
    assert!(uncaught.stderr().starts_with("Uncaught RangeError"), "{}", uncaught.stderr());
}

#[tokio::test]
async fn ends_with_134_when_the_engine_itself_runs_out_of_stack_and_replaces_the_worker() {
    for code in [
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a)",
        "eval('('.repeat(100000))",
        "JSON.parse('['.repeat(100000))",
    ] {
        let provider = provider();
        let ran = run_plan(&provider, plan(&format!("console.log('begun'); {code}"))).await;
        assert_eq!(
            (ran.step().exit_code, ran.stdout().as_str()),
            (134, "begun\n"),
            "{code}: {}",
            ran.stderr()
        );
        assert!(ran.outcome.detail.contains("call stack exhausted"), "{}", ran.outcome.detail);
        let next = run_plan(&provider, plan("console.log(1)")).await;
        assert_eq!(next.stdout(), "1\n");
        assert_ne!(next.fact("pid"), ran.fact("pid"));
    }
}

#[tokio::test]
async fn ends_with_137_when_memory_runs_out_and_nothing_handles_it() {
    for code in [
        "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))",
        "const a = []; for (;;) a.push('x'.repeat(1e5) + a.length)",
        "const a = []; for (;;) a.push({})",
    ] {
        let ran = run_and_run_on(code, Duration::from_mins(1)).await;
        assert_eq!(ran.step().exit_code, 137, "{code}: {} {}", ran.stderr(), ran.outcome.detail);
        assert!(ran.outcome.detail.contains("memory"), "{code}");
    }
    let handled = run("try { new Uint8Array(1 << 30) } catch (e) { console.log('caught') }").await;
    assert_eq!((handled.step().exit_code, handled.stdout().as_str()), (0, "caught\n"));
}

#[tokio::test]
async fn f10_cuts_output_and_says_so_and_ends_a_flood() {
    let ran =
        run_and_run_on("console.log('x'.repeat(100000)); console.error('e')", Duration::from_secs(20)).await;
    assert_eq!((ran.step().stdout.len(), ran.step().stdout_truncated), (64 << 10, true));
    assert_eq!((ran.stderr().as_str(), ran.step().stderr_truncated, ran.step().exit_code), ("e\n", false, 0));
    let flood =
        run_and_run_on("const s = 'y'.repeat(1 << 20); for (;;) console.error(s)", Duration::from_mins(1))
            .await;
    assert_eq!((flood.step().exit_code, flood.step().stderr.len()), (153, 64 << 10));
    assert!(flood.step().stderr_truncated && !flood.step().stdout_truncated);
}

#[tokio::test]
async fn refuses_what_it_does_not_run_before_anything_runs() {
    use freeboard_sandboxd::job::{JobFile, Payload};
    use freeboard_sandboxd::provider::{CreateError, Provider as _};

    let provider = provider();
    let mut plans = vec![plan(&"x".repeat((256 << 10) + 1)), plan("a\0b"), plan(""), plan(""), plan("")];
    plans[2].job.payload = Payload::Command { argv: vec!["true".to_owned()] };
    plans[3].job.files = vec![JobFile { path: "a".to_owned(), content: Vec::new() }];
    plans[4].job.environment = vec![("A".to_owned(), "b".to_owned())];
    for plan in &plans {
        let result = provider.create(plan).await;
        assert!(
            matches!(result, Err(CreateError::Unsupported { provider: "wasm", .. })),
            "{:?}",
            plan.job.payload
        );
    }
}
