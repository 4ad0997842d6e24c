//! How long JavaScript takes from asking to answer, beside what else is on the machine, in one run (goal G10).
//!
//! `cargo bench -p freeboard-sandboxd --bench wasm`. Prints medians with their range over rounds; ratios are of the same
//! round. Anchors that are not installed are left out.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a benchmark may panic, and its numbers are small"
)]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_sandboxd::job::{Job, NoSink, Payload};
use freeboard_sandboxd::provider::wasm::{Settings, WasmProvider};
use freeboard_sandboxd::provider::{Plan, Provider as _};

const ROUNDS: usize = 5;
const WARM_RUNS: usize = 4000;
const PROCESSES: usize = 60;
const PROGRAM: &str = "console.log(6*7)";

fn main() {
    // `cargo test --benches` only asks whether this starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut warm = Vec::new();
    let mut commands: Vec<(&str, Vec<f64>)> = Vec::new();
    for _ in 0..ROUNDS {
        warm.push(runtime.block_on(in_a_daemon()));
        for (name, argv) in anchors() {
            let Some(took) = process(&argv) else { continue };
            match commands.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(took),
                None => commands.push((name, vec![took])),
            }
        }
    }
    println!("in a daemon, one run after the other ({ROUNDS} rounds of {WARM_RUNS}):");
    line("  p50", "µs", warm.iter().map(|round| round.p50).collect());
    line("  p99", "µs", warm.iter().map(|round| round.p99).collect());
    line("  CPU per run, both processes", "µs", warm.iter().map(|round| round.cpu).collect());
    line("  isolated runs per core-second", "", warm.iter().map(|round| 1e6 / round.cpu).collect());
    println!("whole process, exec to exit ({ROUNDS} rounds of {PROCESSES}, median of each):");
    let ours = commands.first().map(|(_, all)| median(all.clone())).unwrap_or_default();
    for (name, all) in commands {
        let ratio = median(all.clone()) / ours;
        line(&format!("  {name} ({ratio:.2}×)"), "ms", all);
    }
}

struct Round {
    p50: f64,
    p99: f64,
    cpu: f64,
}

fn plan() -> Plan {
    let job = Job {
        run: "0".repeat(32),
        caller: Some("bench".to_owned()),
        trace_id: None,
        grants: Vec::new(),
        floor: None,
        timeout: Duration::from_secs(10),
        payload: Payload::JavaScript { code: PROGRAM.to_owned() },
        files: Vec::new(),
        artifacts: Vec::new(),
        environment: Vec::new(),
        output_limit: 64 << 10,
        less: freeboard_sandboxd::job::Less::default(),
        input: None,
        artifact_limit: 0,
    };
    Plan { job, prepared: None }
}

/// create, measure, release: what the daemon does for each run.
async fn in_a_daemon() -> Round {
    let settings = Settings { program: env!("CARGO_BIN_EXE_sandboxd").into(), ..Settings::default() };
    let provider = WasmProvider::new(settings).expect("a provider");
    let plan = plan();
    let mut took = Vec::with_capacity(WARM_RUNS);
    let mut pid = String::new();
    let mut before = 0.0;
    for number in 0..WARM_RUNS + 100 {
        let begun = Instant::now();
        let mut sandbox = provider.create(&plan).await.expect("a sandbox");
        let evidence = sandbox.measure().await.expect("evidence");
        let outcome = sandbox.release(Arc::new(NoSink)).await.expect("an outcome");
        let end = begun.elapsed();
        assert_eq!(outcome.steps[0].stdout, b"42\n");
        if number == 100 {
            pid = evidence.facts.iter().find(|fact| fact.name == "pid").expect("a pid").value.clone();
            before = cpu_us("self") + cpu_us(&pid);
        } else if number > 100 {
            took.push(end.as_secs_f64() * 1e6);
        }
    }
    let cpu = (cpu_us("self") + cpu_us(&pid) - before) / took.len() as f64;
    took.sort_by(f64::total_cmp);
    Round { p50: took[took.len() / 2], p99: took[took.len() * 99 / 100], cpu }
}

/// Processor time of a process so far. From its scheduler statistics, in nanoseconds, of all its threads.
fn cpu_us(pid: &str) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|text| text.parse::<f64>().ok()).unwrap_or_default()
    };
    tasks.flatten().map(|task| of(task.path())).sum::<f64>() / 1e3
}

fn anchors() -> Vec<(&'static str, Vec<String>)> {
    let own = |text: &[&str]| text.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let file = std::env::temp_dir().join("freeboard-bench.js");
    std::fs::write(&file, PROGRAM).expect("a program");
    let file = file.to_string_lossy().into_owned();
    vec![
        ("sandboxd run", own(&[env!("CARGO_BIN_EXE_sandboxd"), "run", "--quiet", &file])),
        ("true", own(&["/bin/true"])),
        (
            "bwrap --unshare-all true",
            own(&[
                "/usr/bin/bwrap",
                "--unshare-all",
                "--ro-bind",
                "/",
                "/",
                "--proc",
                "/proc",
                "--dev",
                "/dev",
                "/bin/true",
            ]),
        ),
        ("node -e", own(&["/usr/bin/node", "-e", PROGRAM])),
    ]
}

/// Median time of a process in milliseconds; `None` when it is not installed or fails.
fn process(argv: &[String]) -> Option<f64> {
    let (program, arguments) = argv.split_first()?;
    let mut took = Vec::new();
    for _ in 0..PROCESSES {
        let begun = Instant::now();
        let status = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .ok()?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        if !status.success() {
            return None;
        }
    }
    Some(median(took))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn line(name: &str, unit: &str, values: Vec<f64>) {
    let (least, most) = values
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(*value), most.max(*value)));
    println!("{name}: {:.2} {unit} ({least:.2} to {most:.2})", median(values));
}
