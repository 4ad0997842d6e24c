//! What the evidence says, what is refused by it, and when KVM counts.

use std::sync::Arc;

use freeboard_policy::Tier;
use freeboard_sandboxd::job::NoSink;
use freeboard_sandboxd::provider::Provider;
use freeboard_sandboxd::provider::microvm::MicrovmConfig;
use sha2::Digest;

use crate::gate::plan;
use crate::support::*;

#[test]
fn f35_the_evidence_is_of_the_live_boundary() {
    with_microvm(MicrovmConfig::default(), async |provider| {
        let (sandbox, evidence) = measured(&provider, shell("uname -r")).await.unwrap();
        assert_eq!(evidence.provider.as_str(), "microvm");
        assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:?}");
        let bytes = std::fs::read("/usr/bin/qemu-system-x86_64").unwrap();
        let digest: String = sha2::Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(fact(&evidence, "qemu_sha256").value, digest);
        for name in ["kernel_sha256", "initramfs_sha256"] {
            assert_eq!(fact(&evidence, name).value.len(), 64, "{name}");
        }
        assert_eq!(fact(&evidence, "machine_seccomp_mode").value, "2");
        assert_eq!(fact(&evidence, "machine_capabilities").value, "none");
        assert_ne!(fact(&evidence, "machine_host_uid").value, "0");
        assert_eq!(fact(&evidence, "machine_taps").value, "0");
        // Only a machine that KVM executes is a machine.
        let kvm = fact(&evidence, "qmp_kvm").value == "enabled";
        assert_eq!(evidence.tier, if kvm { Tier::Vm } else { Tier::Container }, "{evidence:?}");
        assert_eq!(provider.describe().tier, evidence.tier);
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert_eq!(first(&outcome).1.trim(), fact(&evidence, "guest_kernel").value);
    });
}

#[test]
fn the_network_is_measured_from_outside() {
    with_microvm(MicrovmConfig::default(), async |provider| {
        let plan = plan(shell("cat /proc/net/dev"));
        let mut sandbox = provider.create(&plan).await.unwrap();
        let evidence = sandbox.measure().await.unwrap();
        assert_eq!(fact(&evidence, "machine_links").value, "lo");
        assert_eq!(fact(&evidence, "machine_taps").value, "1");
        assert!(fact(&evidence, "gate_links").value.starts_with("lo fb"), "{evidence:?}");
        assert_eq!(fact(&evidence, "routes_out").value, "none");
        assert!(sandbox.take_doors().len() >= 5);
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert!(first(&outcome).1.contains("eth0:"));
    });
}

#[test]
fn f35_f37_without_kvm_a_machine_is_no_tier_vm_and_says_why() {
    let config = MicrovmConfig { kvm: "/nonexistent/kvm".into(), ..MicrovmConfig::default() };
    with_microvm(config, async |provider| {
        let description = provider.describe();
        assert_eq!(description.tier, Tier::Container);
        assert!(description.weaker.unwrap().contains("/nonexistent/kvm"));
        let (_, evidence) = measured(&provider, shell("true")).await.unwrap();
        assert_eq!(evidence.tier, Tier::Container);
        let why = &fact(&evidence, "accelerator").value;
        assert!(why.contains("/nonexistent/kvm"), "{why}");
    });
}

/// A device that every run may open, whatever this host's own allows: the same device under another name.
fn open_device(folder: &std::path::Path) -> Option<std::path::PathBuf> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let device = std::fs::metadata("/dev/kvm").ok()?.rdev();
    let path = folder.join("kvm");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::CharacterDevice, mode, device).ok()?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).ok()?;
    std::fs::File::options().read(true).write(true).open(&path).ok()?;
    Some(path)
}

#[test]
fn f35_kvm_counts_when_a_machine_has_booted_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(kvm) = open_device(folder.path()) else {
        eprintln!("SKIPPED: this host has no /dev/kvm");
        return;
    };
    with_microvm(MicrovmConfig { kvm, ..MicrovmConfig::default() }, async |provider| {
        assert_eq!(provider.describe().tier, Tier::Vm, "the device is there");
        let mut wanted = shell("echo ran");
        wanted.floor = Some(Tier::Vm);
        match measured(&provider, wanted).await {
            Ok((_, evidence)) => {
                assert_eq!(evidence.tier, Tier::Vm);
                assert_eq!(fact(&evidence, "kvm_machine").value, "anon_inode:kvm-vm");
            }
            // A KVM that boots nothing is found out, within its time; nothing ran.
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("needs tier `vm`") && error.contains("boots no machine"), "{error}");
                assert_eq!(provider.describe().tier, Tier::Container);
                let (_, evidence) = measured(&provider, shell("true")).await.unwrap();
                assert_eq!(evidence.tier, Tier::Container);
                assert!(fact(&evidence, "accelerator").value.contains("boots no machine"));
            }
        }
    });
}

#[test]
fn f37_a_qemu_that_is_none_runs_nothing() {
    let config = MicrovmConfig { qemu: Some("/usr/bin/true".into()), ..MicrovmConfig::default() };
    with_microvm(config, async |provider| {
        let error = measured(&provider, shell("echo ran")).await.err().unwrap().to_string();
        assert!(error.contains("first process"), "{error}");
    });
}
