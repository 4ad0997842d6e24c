//! Bombs end their own run only, and the reason is told.

use std::time::Duration;

use crate::support::*;

fn small() -> Allowance {
    Allowance { memory_mib: 96, pids: 32, disk_mib: 8, ..Allowance::default() }
}

#[test]
fn f08_a_memory_bomb_is_no_success_and_says_memory() {
    with_provider(small(), async |provider| {
        let outcome = run(
            provider,
            python("b = bytearray(600 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('all')"),
        )
        .await
        .unwrap();
        let (code, stdout, _) = first(&outcome);
        assert!(code != 0 && stdout.is_empty(), "{outcome:?}");
        assert!(outcome.detail.contains("memory"), "{outcome:?}");
        assert_eq!(first(&run(provider, shell("echo next")).await.unwrap()).1, "next\n");
    });
}

#[test]
fn f07_a_fork_bomb_ends_and_says_pids() {
    with_provider(small(), async |provider| {
        let mut job = python(
            "import os, time\n\
             n = 0\n\
             while n < 2000:\n\
             \x20   if os.fork() == 0: time.sleep(30); os._exit(0)\n\
             \x20   n += 1\n\
             print('all')",
        );
        job.timeout = Duration::from_secs(20);
        let outcome = run(provider, job).await.unwrap();
        let (code, stdout, _) = first(&outcome);
        assert!(code != 0 && !stdout.contains("all"), "{outcome:?}");
        assert!(outcome.detail.contains("pids"), "{outcome:?}");
        assert_eq!(first(&run(provider, shell("echo next")).await.unwrap()).1, "next\n");
    });
}

#[test]
fn f09_the_work_directory_has_its_size() {
    with_provider(small(), async |provider| {
        let script = "dd if=/dev/zero of=/work/x bs=1M count=64 2>/dev/null; echo $?; wc -c < /work/x";
        let outcome = run(provider, shell(script)).await.unwrap();
        let (_, stdout, stderr) = first(&outcome);
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(lines[0], "1", "{stderr}");
        assert!(lines[1].parse::<u64>().unwrap() <= 8 << 20, "{stdout}");
        assert!(outcome.detail.contains("disk"), "{outcome:?}");
    });
}

#[test]
fn f10_a_flood_is_cut_and_flagged() {
    with_provider(Allowance::default(), async |provider| {
        let outcome = run(provider, shell("head -c 3000000 /dev/zero; echo end >&2")).await.unwrap();
        let step = &outcome.steps[0];
        assert!(step.stdout_truncated && step.stdout.len() == 64 << 10, "{}", step.stdout.len());
        assert_eq!(step.stderr, b"end\n");
    });
}
