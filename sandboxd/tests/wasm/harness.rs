//! A provider on the built `sandboxd`, and runs on it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use freeboard_control::{Door, Evidence, Prepared, SurfaceApi};
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
    let (run, payload) = ("0123456789abcdef".repeat(2), Payload::JavaScript { code: code.to_owned() });
    Job { output_limit: 64 << 10, ..Job::of_nobody(run, payload, Duration::from_secs(20)) }
}

pub(crate) fn plan(code: &str) -> Plan {
    Plan { job: job(code), prepared: None }
}

/// A plan with a gate, as the broker would prepare it.
pub(crate) fn plan_with_gate(code: &str) -> Plan {
    let surface = vec![SurfaceApi {
        api: "things".to_owned(),
        base_url: "https://api.test".to_owned(),
        routes: vec!["GET /**".to_owned()],
    }];
    let prepared = Prepared {
        policy_digest: String::new(),
        floor: None,
        ttl_seconds: None,
        ports: Vec::new(),
        ca_pem: String::new(),
        surface,
        variables: Vec::new(),
    };
    Plan { job: job(code), prepared: Some(prepared) }
}

/// A run with everything that is known of it.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) evidence: Evidence,
    pub(crate) outcome: Outcome,
}

impl Ran {
    pub(crate) fn step(&self) -> &StepOutcome {
        &self.outcome.steps[0]
    }

    pub(crate) fn stdout(&self) -> String {
        text(&self.step().stdout)
    }

    pub(crate) fn stderr(&self) -> String {
        text(&self.step().stderr)
    }

    pub(crate) fn fact(&self, name: &str) -> String {
        fact(&self.evidence, name)
    }
}

pub(crate) fn fact(evidence: &Evidence, name: &str) -> String {
    evidence.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone()).unwrap_or_default()
}

/// Runs a plan; `gate` gets the door where there is one.
pub(crate) async fn run_with(provider: &WasmProvider, plan: Plan, gate: impl FnOnce(OwnedFd)) -> Ran {
    let mut sandbox = provider.create(&plan).await.expect("a sandbox");
    let evidence = sandbox.measure().await.expect("evidence");
    let unmet: Vec<_> = evidence.facts.iter().filter(|fact| !fact.met).collect();
    assert!(unmet.is_empty(), "{unmet:?}");
    let mut doors = sandbox.take_doors();
    assert_eq!(doors.len(), usize::from(plan.prepared.is_some()));
    if let Some((door, socket)) = doors.pop() {
        assert_eq!(door, Door::Streams);
        gate(socket);
    }
    let outcome = sandbox.release(Arc::new(NoSink)).await.expect("an outcome");
    Ran { evidence, outcome }
}

pub(crate) async fn run_plan(provider: &WasmProvider, plan: Plan) -> Ran {
    run_with(provider, plan, drop).await
}

pub(crate) async fn run(code: &str) -> Ran {
    run_plan(&provider(), plan(code)).await
}

/// Standard output of a program that must end well.
pub(crate) async fn stdout(code: &str) -> String {
    let ran = run(code).await;
    assert_eq!((ran.step().exit_code, ran.stderr().as_str()), (0, ""), "{code}\n{}", ran.stdout());
    ran.stdout()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Waits for a condition, at most five seconds.
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
