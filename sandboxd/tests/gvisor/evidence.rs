//! What the evidence says, and what is refused by it.

use std::sync::Arc;

use freeboard_policy::Tier;
use freeboard_sandboxd::job::NoSink;
use freeboard_sandboxd::provider::gvisor::GvisorConfig;
use freeboard_sandboxd::provider::{Plan, Provider};
use sha2::Digest;

use crate::gate::plan;
use crate::support::*;

#[test]
fn f35_the_evidence_is_of_the_live_boundary() {
    with_gvisor(GvisorConfig::default(), async |provider| {
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
fn a_runtime_that_was_replaced_since_the_start_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runsc = folder.path().join("runsc");
    std::fs::copy("/usr/bin/runsc", &runsc).unwrap();
    // Every user of a run must reach it, as it does in /usr/bin.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let config = GvisorConfig { runsc: Some(runsc.clone()), ..GvisorConfig::default() };
    with_gvisor(config, async |provider| {
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
    with_gvisor(config, async |provider| {
        let plan = Plan { job: shell("echo ran"), prepared: None };
        let error = provider.create(&plan).await.err().unwrap().to_string();
        assert!(error.contains("first process"), "{error}");
    });
}

#[test]
fn the_network_is_measured_from_outside() {
    with_gvisor(GvisorConfig::default(), async |provider| {
        let plan = plan(shell("cat /proc/net/dev"));
        let mut sandbox = provider.create(&plan).await.unwrap();
        let evidence = sandbox.measure().await.unwrap();
        assert_eq!(fact(&evidence, "kernel_links").value, "lo eth0");
        assert!(fact(&evidence, "gate_links").value.starts_with("lo fb"), "{evidence:?}");
        assert_eq!(fact(&evidence, "routes_out").value, "none");
        let check = &fact(&evidence, "runtime_network_check").value;
        assert!(check == "works" || check.contains("rmem_default"), "{check}");
        assert!(sandbox.take_doors().len() >= 5);
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert!(first(&outcome).1.contains("eth0:"));
    });
}
