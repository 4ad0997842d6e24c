//! Bombs: each ends at its limit, is named, and leaves the provider serving.

use std::time::{Duration, Instant};

use freeboard_sandboxd::job::{Ending, Outcome};
use freeboard_sandboxd::provider::native::{NativeConfig, NativeProvider};

use crate::support::*;

/// After a bomb the same provider still serves.
async fn still_serves(provider: &NativeProvider) {
    assert_eq!(first(&run(provider, shell("echo alive")).await.unwrap()).1, "alive\n");
}

fn bomb(config: NativeConfig, script: &str, seconds: u64) -> Outcome {
    with_provider(config, async |provider| {
        let mut job = shell(script);
        job.timeout = Duration::from_secs(seconds);
        let outcome = run(&provider, job).await.unwrap();
        still_serves(&provider).await;
        outcome
    })
}

#[test]
fn f07_a_fork_bomb_ends_at_the_limit_of_processes() {
    let config = giving(Allowance { pids: 32, ..Allowance::default() });
    let began = Instant::now();
    let outcome = bomb(config, "b() { b | b & b; }; b", 3);
    assert!(began.elapsed() < Duration::from_secs(9));
    assert_ne!((outcome.ending, outcome.steps[0].exit_code), (Ending::Completed, 0));
    if has_group() {
        assert!(outcome.detail.contains("pids"), "{outcome:?}");
    }
}

#[test]
fn f08_a_memory_bomb_is_137_and_named() {
    let config = giving(Allowance { memory_mib: 64, disk_mib: 512, ..Allowance::default() });
    let outcome = bomb(config.clone(), "python3 -c 'x = bytearray(1 << 30)'", 20);
    assert_ne!(outcome.steps[0].exit_code, 0);
    if has_group() {
        assert_eq!(outcome.steps[0].exit_code, 137, "{outcome:?}");
        assert!(outcome.detail.contains("memory"), "{outcome:?}");
        // Files in /work are memory too.
        let outcome = bomb(config, "head -c 300000000 /dev/zero > /work/x; echo $?", 20);
        assert!(outcome.detail.contains("memory"), "{outcome:?}");
    }
}

#[test]
fn f08_an_absurd_allocation_fails_in_the_program() {
    let (code, stdout, _) = once(python(
        "try: bytearray(1 << 40)\nexcept MemoryError: print('no memory')\n\
         import os\nfds = []\ntry:\n  while True: fds.append(os.open('/dev/null', 0))\nexcept OSError as e: print(e.errno)\n",
    ));
    assert_eq!((code, stdout.as_str()), (0, "no memory\n24\n"));
}

#[test]
fn f09_disk_and_inodes_end_at_their_size_and_are_cleaned_up_quickly() {
    let config = giving(Allowance { disk_mib: 8, ..Allowance::default() });
    let outcome = bomb(config.clone(), "head -c 20000000 /dev/zero > x", 20);
    assert_ne!(outcome.steps[0].exit_code, 0);
    assert!(outcome.detail.contains("disk"), "{outcome:?}");
    let began = Instant::now();
    let script = "import os\nn = 0\ntry:\n  while True: open(f'/work/{n}', 'w').close(); n += 1\n\
                  except OSError as e: print(e.errno, n < 3000)\n\
                  try: os.truncate(os.open('/work/0', 2), 1 << 40)\nexcept OSError as e: print(e.errno)\n";
    let outcome = bomb(config, &format!("python3 -c \"{script}\""), 20);
    assert_eq!(first(&outcome).1, "28 True\n27\n", "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn f10_a_flood_is_cut_flagged_and_killed_with_flat_memory() {
    with_provider(NativeConfig::default(), async |provider| {
        for script in ["yes", "cat /dev/zero >&2", "python3 -c \"print('x' * 150000000)\""] {
            let mut job = shell(script);
            job.timeout = Duration::from_secs(30);
            let outcome = run(&provider, job).await.unwrap();
            let step = &outcome.steps[0];
            assert_eq!(step.exit_code, 153, "{script}: {}", outcome.detail);
            assert!(step.stdout_truncated || step.stderr_truncated);
            assert!(step.stdout.len() + step.stderr.len() <= 64 << 10);
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak_kib: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
        assert!(peak_kib < 200_000, "{peak_kib} KiB");
    });
}

#[test]
fn cpu_is_shared_out_where_there_is_a_group() {
    if !has_group() {
        return;
    }
    let config = giving(Allowance { cpus: 0.2, ..Allowance::default() });
    let script =
        "import time\ne = time.time() + 1.5\nwhile time.time() < e: pass\nprint(time.process_time() < 0.9)\n";
    let outcome = with_provider(config, async |provider| run(&provider, python(script)).await.unwrap());
    assert_eq!(first(&outcome).1, "True\n");
}

#[test]
fn f09_a_full_tmp_is_told_apart_from_a_full_work_directory() {
    with_provider(NativeConfig::default(), async |provider| {
        let outcome = run(&provider, shell("head -c 80000000 /dev/zero > /tmp/x; echo $?")).await.unwrap();
        assert_eq!(first(&outcome).1, "1\n");
        assert!(outcome.detail.contains("/tmp is full") && !outcome.detail.contains("/work"), "{outcome:?}");
    });
}
