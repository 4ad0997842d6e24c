//! A provider on the built `sandboxd`, and runs on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use freeboard_sandboxd::job::{Job, NoSink, Outcome, Payload, StepOutcome};
use freeboard_sandboxd::provider::wasm::{Settings, WasmProvider};
use freeboard_sandboxd::provider::{Plan, Provider as _};

pub(crate) fn settings() -> Settings {
    Settings { program: PathBuf::from(env!("CARGO_BIN_EXE_sandboxd")), ..Settings::default() }
}

pub(crate) fn provider() -> WasmProvider {
    WasmProvider::new(settings()).expect("a provider")
}

pub(crate) fn job(code: &str) -> Job {
    Job {
        run: "0123456789abcdef0123456789abcdef".to_owned(),
        caller: None,
        trace_id: None,
        grants: Vec::new(),
        floor: None,
        timeout: Duration::from_secs(20),
        payload: Payload::JavaScript { code: code.to_owned() },
        files: Vec::new(),
        artifacts: Vec::new(),
        environment: Vec::new(),
        output_limit: 64 << 10,
        artifact_limit: 0,
    }
}

pub(crate) fn plan(code: &str) -> Plan {
    Plan { job: job(code), prepared: None }
}

pub(crate) async fn run_plan(provider: &WasmProvider, plan: Plan) -> Outcome {
    let mut sandbox = provider.create(&plan).await.expect("a sandbox");
    let evidence = sandbox.measure().await.expect("evidence");
    let unmet: Vec<_> = evidence.facts.iter().filter(|fact| !fact.met).collect();
    assert!(unmet.is_empty(), "{unmet:?}");
    sandbox.release(Arc::new(NoSink)).await.expect("an outcome")
}

pub(crate) async fn run(code: &str) -> StepOutcome {
    run_plan(&provider(), plan(code)).await.steps.remove(0)
}

/// Standard output of a program that must end well.
pub(crate) async fn stdout(code: &str) -> String {
    let step = run(code).await;
    let (out, err) = (text(&step.stdout), text(&step.stderr));
    assert_eq!((step.exit_code, err.as_str()), (0, ""), "{code}\n{out}");
    out
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
