//! What works: languages, files, exit codes; and what the evidence says.

use std::sync::Arc;

use freeboard_policy::Tier;
use freeboard_sandboxd::job::{Ending, JobFile, NoSink, Payload};
use freeboard_sandboxd::provider::gvisor::GvisorConfig;
use freeboard_sandboxd::provider::{Plan, Provider};

use sha2::Digest;

use crate::support::*;

#[test]
fn shell_python_javascript_and_commands_run() {
    with_provider(GvisorConfig::default(), async |provider| {
        let outcome = run(&provider, shell("echo $((6*7)); echo oops >&2; exit 3")).await.unwrap();
        assert_eq!(first(&outcome), (3, "42\n".into(), "oops\n".into()));
        let outcome = run(&provider, python("print(6*7)")).await.unwrap();
        assert_eq!(first(&outcome), (0, "42\n".into(), String::new()));
        let command = job(Payload::Command { argv: vec!["uname".into(), "-s".into()] });
        assert_eq!(first(&run(&provider, command).await.unwrap()).1, "Linux\n");
        let unknown = job(Payload::Command { argv: vec!["no-such-command".into()] });
        assert_eq!(first(&run(&provider, unknown).await.unwrap()).0, 127);
        if provider.describe().supports_javascript {
            let script = job(Payload::JavaScript { code: "console.log(6*7)".into() });
            let outcome = run(&provider, script).await.unwrap();
            assert_eq!(first(&outcome), (0, "42\n".into(), String::new()));
        }
    });
}

#[test]
fn files_go_in_and_artifacts_come_out_and_no_link_is_followed() {
    with_provider(GvisorConfig::default(), async |provider| {
        let mut job = shell(
            "set -e; test \"$(cat in/a.txt)\" = content; ./in/run.sh > out.txt; rm in/a.txt; \
             ln -s /etc/passwd link; mkdir -p d; ln -s /etc d/e; id -u >> out.txt",
        );
        job.files = vec![
            JobFile { path: "in/a.txt".into(), content: b"content".to_vec() },
            JobFile { path: "in/run.sh".into(), content: b"#!/bin/sh\necho ran\n".to_vec() },
        ];
        job.artifacts = ["out.txt", "link", "d/e/passwd", "missing"].map(String::from).to_vec();
        let outcome = run(&provider, job).await.unwrap();
        assert_eq!(outcome.ending, Ending::Completed, "{outcome:?}");
        assert_eq!(first(&outcome).0, 0, "{outcome:?}");
        let artifacts = vec![JobFile { path: "out.txt".into(), content: b"ran\n1000\n".to_vec() }];
        assert_eq!(outcome.artifacts, artifacts);
    });
}

#[test]
fn f35_the_evidence_is_of_the_live_boundary() {
    with_provider(GvisorConfig::default(), async |provider| {
        let (sandbox, evidence) = measured(&provider, shell("cat /proc/version; uname -r")).await.unwrap();
        assert_eq!((evidence.provider.as_str(), evidence.tier), ("gvisor", Tier::Kernel));
        assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:?}");
        let bytes = std::fs::read("/usr/bin/runsc").unwrap();
        let digest: String = sha2::Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(fact(&evidence, "runtime_sha256").value, digest);
        assert_eq!(fact(&evidence, "kernel_seccomp_mode").value, "2");
        assert_eq!(fact(&evidence, "files_seccomp_mode").value, "2");
        assert_ne!(fact(&evidence, "kernel_host_uid").value, "0");
        let inside = fact(&evidence, "guest_kernel").value.clone();
        let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_ne!(inside, host.trim());
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert!(first(&outcome).1.ends_with(&format!("{inside}\n")), "{outcome:?}");
    });
}

#[test]
fn the_smoke_test_passes_here() {
    with_provider(GvisorConfig::default(), async |provider| provider.smoke_test().await.unwrap());
}

#[test]
fn a_runtime_that_was_replaced_since_the_start_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runsc = folder.path().join("runsc");
    std::fs::copy("/usr/bin/runsc", &runsc).unwrap();
    // Every user of a run must reach it, as it does in /usr/bin.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let config = GvisorConfig { runsc: Some(runsc.clone()), ..GvisorConfig::default() };
    with_provider(config, async |provider| {
        assert_eq!(first(&run(&provider, shell("echo before")).await.unwrap()).1, "before\n");
        std::fs::rename(&runsc, folder.path().join("old")).unwrap();
        std::fs::copy("/usr/bin/runsc", &runsc).unwrap();
        let plan = Plan { job: shell("echo after"), prepared: None };
        let mut sandbox = provider.create(&plan).await.unwrap();
        let error = sandbox.measure().await.unwrap_err().to_string();
        assert!(error.contains("kernel_program is `another file`"), "{error}");
    });
}

#[test]
fn f37_a_runtime_that_is_no_gvisor_runs_nothing() {
    let config = GvisorConfig { runsc: Some("/bin/true".into()), ..GvisorConfig::default() };
    with_provider(config, async |provider| {
        let plan = Plan { job: shell("echo ran"), prepared: None };
        let error = provider.create(&plan).await.err().unwrap().to_string();
        assert!(error.contains("first process"), "{error}");
    });
}
