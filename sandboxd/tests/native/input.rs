//! Standard input that comes while the program runs.

use std::sync::Arc;
use std::time::Duration;

use freeboard_sandboxd::input::Input;
use freeboard_sandboxd::job::{Ending, Job, Less, Payload};
use freeboard_sandboxd::provider::native::NativeConfig;
use freeboard_wire::runs::Stdin;

use crate::support::*;

fn fed(job: Job, data: &[u8], open: bool) -> (Job, Arc<Input>) {
    let input = Arc::new(Input::of(Stdin { data: data.to_vec(), open }));
    (Job { input: Some(Arc::clone(&input)), ..job }, input)
}

#[test]
fn a_program_reads_what_is_written_while_it_runs_and_then_the_end() {
    with_provider(NativeConfig::default(), async |provider| {
        let (job, input) =
            fed(shell("while read line; do echo \"got $line\"; done; echo end"), b"one\n", true);
        let writing = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            input.put(4, b"two\n", false).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            input.put(8, b"three\n", true).unwrap();
        };
        let (outcome, ()) = tokio::join!(run(&provider, job), writing);
        assert_eq!(first(&outcome.unwrap()).1, "got one\ngot two\ngot three\nend\n");
    });
}

#[test]
fn a_megabyte_arrives_whole_and_steps_share_it_as_in_a_shell_script() {
    with_provider(NativeConfig::default(), async |provider| {
        let data: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
        let steps = vec!["head -c 1000 | wc -c".into(), "wc -c".into(), "wc -c".into()];
        let (job, _) = fed(job(Payload::Steps { steps }), &data, false);
        let outcome = run(&provider, job).await.unwrap();
        let said: Vec<&str> =
            outcome.steps.iter().map(|step| std::str::from_utf8(&step.stdout).unwrap().trim()).collect();
        assert_eq!(said, ["1000", "999000", "0"], "{outcome:?}");
    });
}

#[test]
fn a_program_that_reads_nothing_ends_as_without_input() {
    with_provider(NativeConfig::default(), async |provider| {
        let (job, input) = fed(shell("echo done"), &vec![7; 1 << 20], true);
        let outcome = run(&provider, job).await.unwrap();
        assert_eq!((first(&outcome).1.as_str(), outcome.ending), ("done\n", Ending::Completed));
        assert_eq!(input.taken().bytes, 1 << 20);
        // Nobody says the end: the deadline holds.
        let (job, _) = fed(shell("cat"), b"", true);
        let outcome = run(&provider, Job { timeout: Duration::from_millis(300), ..job }).await.unwrap();
        assert_eq!((first(&outcome).0, outcome.ending), (124, Ending::TimedOut));
    });
}

#[test]
fn a_run_has_the_memory_and_processes_that_it_asked_for() {
    if !has_group() {
        eprintln!("SKIPPED: no control groups here");
        return;
    }
    with_provider(NativeConfig::default(), async |provider| {
        let less = Less { memory_mib: Some(48), pids: Some(12), time: None };
        let hungry = "b = bytearray(200 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('all')";
        let outcome = run(&provider, Job { less, ..python(hungry) }).await.unwrap();
        assert_eq!(first(&outcome).1, "", "{outcome:?}");
        assert!(outcome.detail.contains(&format!("memory: the limit of {} bytes", 48 << 20)), "{outcome:?}");
        let outcome = run(&provider, python(hungry)).await.unwrap();
        assert_eq!(first(&outcome).1, "all\n", "another run has what it always had: {outcome:?}");
        let many = shell("for i in $(seq 20); do sleep 5 & done; wait");
        let outcome = run(&provider, Job { less, timeout: Duration::from_secs(2), ..many }).await.unwrap();
        assert!(outcome.detail.contains("pids: the limit of 12 processes"), "{outcome:?}");
    });
}
