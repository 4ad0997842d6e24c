//! What of the host can be seen and changed, and what can be smuggled out as an artifact.

use freeboard_sandboxd::job::{Ending, JobFile};
use freeboard_sandboxd::provider::native::NativeConfig;

use crate::support::*;

#[test]
fn f03_f44_no_homes_sockets_devices_or_settings_of_the_host() {
    let absent = "for p in /root/.ssh /root/.cargo /home/* /opt /srv /mnt /var/lib /var/run/docker.sock /run/* /etc/shadow \
                  /etc/ssh /etc/machine-id /etc/freeboard /dev/kvm /dev/mem /dev/kmsg /dev/sda /dev/vda /dev/fuse \
                  /dev/net/tun /sys/* /boot /proc/kcore/x /lost+found; do test -e $p && echo there: $p; done; \
                  for p in /usr/bin/env /etc/passwd /dev/null /proc/self/status; do test -e $p || echo missing: $p; done";
    let (_, stdout, _) = once(shell(absent));
    assert_eq!(stdout, "");
}

#[test]
fn f13_facts_of_the_host_are_covered() {
    let host = rustix::system::uname();
    let host_name = host.nodename().to_string_lossy().into_owned();
    let script = "hostname; cat /proc/sys/kernel/hostname /etc/hostname; cat /etc/passwd | wc -l; \
                  cat /proc/cmdline /proc/keys /proc/kallsyms /proc/interrupts /proc/config.gz 2>/dev/null | wc -c; \
                  ls /proc/acpi /proc/bus /proc/fs /proc/irq 2>/dev/null | grep -v : | grep -c .; \
                  cat /proc/self/cgroup; readlink /proc/1/exe; cat /proc/1/environ 2>&1 >/dev/null | wc -l";
    let (_, stdout, _) = once(shell(script));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(&lines[..6], ["sandbox", "sandbox", "sandbox", "3", "0", "0"], "{stdout}");
    assert!(!stdout.contains(&host_name) || host_name == "sandbox", "{stdout}");
    assert_eq!(lines.last(), Some(&"1"), "pid 1 is not shown: {stdout}");
    // Each path of the control groups starts at the run's own group.
    for line in
        lines.iter().filter(|line| line.contains("::/") || line.starts_with(|c: char| c.is_ascii_digit()))
    {
        assert!(!line.contains("freeboard"), "{line}");
    }
}

#[test]
fn the_view_of_the_host_is_read_only() {
    let script = "for p in /usr/x /etc/x /etc/passwd /x /dev/x /proc/sys/kernel/hostname /usr/bin/env; do \
                  (echo y > $p) 2>/dev/null && echo \"wrote $p\"; done; \
                  for p in /work /tmp /dev/shm; do echo y > $p/x || echo \"cannot write $p\"; done; \
                  cp /bin/true /tmp/t && /tmp/t 2>/dev/null && echo /tmp executes; \
                  cp /bin/true /work/t && /work/t || echo /work does not execute";
    let (code, stdout, stderr) = once(shell(script));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
}

#[test]
fn f14_f15_links_lead_nowhere_in_and_out() {
    with_provider(NativeConfig::default(), async |provider| {
        let mut job = shell(
            "ln -s /etc/passwd a; ln -s ../../.. b; ln -s loop loop; mkdir d; echo in > d/f; ln -s d l; mkfifo p; \
             ln d/f hard; echo real > real; mkdir move; echo x > move/f; mv move moved; ln -s /etc move",
        );
        let names = ["a", "b/etc/passwd", "loop", "l/f", "p", "hard", "real", "move/passwd", "d/f"];
        job.artifacts = names.map(String::from).to_vec();
        let outcome = run(&provider, job).await.unwrap();
        let captured: Vec<&str> = outcome.artifacts.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(captured, ["hard", "real", "d/f"]);
    });
}

#[test]
fn f15_a_path_that_leaves_is_refused_before_anything_runs() {
    with_provider(NativeConfig::default(), async |provider| {
        for path in ["../x", "/etc/x", "a/../../x", "a//b"] {
            let mut job = shell("echo ran");
            job.files = vec![JobFile { path: path.into(), content: b"x".to_vec() }];
            let outcome = run(&provider, job).await.unwrap();
            assert_eq!((outcome.ending, outcome.steps.len()), (Ending::SetupFailed, 0), "{path}");
            assert!(outcome.detail.contains(path));
        }
    });
}

#[test]
fn artifacts_over_the_limit_are_left_out_and_flagged() {
    with_provider(NativeConfig::default(), async |provider| {
        let mut job = shell("head -c 1000 /dev/zero > big; echo small > small");
        job.artifacts = vec!["big".into(), "small".into()];
        job.artifact_limit = 100;
        let outcome = run(&provider, job).await.unwrap();
        assert!(outcome.artifacts_truncated);
        assert_eq!(outcome.artifacts.len(), 1);
    });
}
