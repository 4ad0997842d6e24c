//! P1, P4, P7 where a run has a kernel of its own: a program there reaches a granted API with an injected credential, and
//! nothing else. Attack classes D and F.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::process::Command;

use freeboard_tests::broker::program;
use freeboard_tests::lab::{C1, Lab, POLICY};
use freeboard_tests::sandbox::{Ran, User};

/// A provider whose runs have a kernel of their own.
struct Own {
    provider: &'static str,
    /// The tier that it reaches on every host that has what it needs. A machine is tier `vm` only with KVM.
    tier: &'static str,
    needs: &'static str,
}

const OWN: [Own; 2] = [
    Own { provider: "gvisor", tier: "kernel", needs: "/usr/bin/runsc" },
    Own { provider: "microvm", tier: "container", needs: "/usr/bin/qemu-system-x86_64" },
];

impl Own {
    /// The lab, where this provider can run with a gate: as root, with its engine.
    fn lab(&self, policy: &str) -> Option<Lab> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: runs of {} with a gate need root", self.provider);
            return None;
        }
        if !std::path::Path::new(self.needs).exists() {
            eprintln!("SKIPPED: `{}` is not installed (tests/run installs it)", self.needs);
            return None;
        }
        let lab = Lab::start_with(policy, &[])?;
        // Inside another machine KVM may be there and boot nothing: found out in 15 seconds, once per start.
        let path = lab.broker.config_file();
        let config = std::fs::read_to_string(&path).unwrap();
        let with = config.replace("[sandboxd]\n", "[sandboxd]\nmicrovm_kvm = \"/nonexistent/kvm\"\n");
        assert_ne!(with, config, "the lab's file has a table for sandboxd");
        std::fs::write(path, with).unwrap();
        Some(lab)
    }

    fn run(&self, lab: &Lab, grants: &[&str], command: &[&str]) -> Ran {
        let more = ["--provider", self.provider, "--floor", self.tier, "--timeout", "60s"];
        lab.sandbox_as(User::Own, grants, &more, command)
    }

    fn curl_gets_the_credential_injected_and_every_other_way_refused(&self) {
        let Some(lab) = self.lab(POLICY) else { return };
        let granted = ["curl", "-sS", "--http1.1", "https://api.test/v1/items/1"];
        let ran = self.run(&lab, &["items"], &granted).succeeded();
        assert!(ran.stdout.contains("/v1/items/1"), "{ran:?}");
        let reported = format!("at tier {} by {}", self.tier, self.provider);
        assert!(ran.stderr.contains(&reported), "{ran:?}");
        let recorded = lab.upstream.take();
        assert_eq!(recorded[0].field("authorization").unwrap(), format!("Bearer {C1}"));

        let script = "curl -sS -w '\\n%{http_code}\\n' https://api.test/v1/admin; \
                      curl -sS https://evil.test/; echo $?; \
                      curl -sSk -m 20 https://1.1.1.1/ -w '%{http_code}\\n' | tail -n 1; \
                      curl -sS -m 20 http://169.254.169.254/latest/ -o /dev/null -w '%{http_code}\\n'";
        let ran = self.run(&lab, &["items"], &["/bin/sh", "-c", script]);
        assert!(ran.stdout.contains("no_rule") && ran.stdout.contains("\n403\n6\n"), "{ran:?}");
        assert!(!ran.stdout.contains("\n200"), "{ran:?}");
        assert!(lab.upstream.take().is_empty(), "{ran:?}");
    }

    fn python_and_node_reach_the_grant_too(&self) {
        let Some(lab) = self.lab(POLICY) else { return };
        let python = "import urllib.request as r; print(r.urlopen('https://api.test/v1/items/2').status)";
        let ran = self.run(&lab, &["items"], &["python3", "-c", python]).succeeded();
        assert_eq!(ran.stdout, "200\n", "{ran:?}");
        let node = "fetch('https://api.test/v1/items/3').then(a => console.log(a.status))";
        let ran = self.run(&lab, &["items"], &["node", "-e", node]).succeeded();
        assert_eq!(ran.stdout, "200\n", "{ran:?}");
        for recorded in lab.upstream.take() {
            assert_eq!(recorded.field("authorization").unwrap(), format!("Bearer {C1}"));
        }
    }
}

#[test]
fn curl_in_gvisor_gets_the_credential_injected_and_every_other_way_refused() {
    OWN[0].curl_gets_the_credential_injected_and_every_other_way_refused();
}

#[test]
fn curl_in_a_machine_gets_the_credential_injected_and_every_other_way_refused() {
    OWN[1].curl_gets_the_credential_injected_and_every_other_way_refused();
}

#[test]
fn python_and_node_in_gvisor_reach_the_grant_too() {
    OWN[0].python_and_node_reach_the_grant_too();
}

#[test]
fn python_and_node_in_a_machine_reach_the_grant_too() {
    OWN[1].python_and_node_reach_the_grant_too();
}

#[test]
fn a_grant_with_a_floor_is_used_in_gvisor_and_not_below() {
    let policy = with_floor("kernel");
    let Some(lab) = OWN[0].lab(&policy) else { return };
    let command = ["curl", "-sS", "--http1.1", "https://api.test/v1/items/1"];
    let ran = lab.sandbox_as(User::Own, &["items"], &["--provider", "native"], &command);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(126), ""), "{ran:?}");
    assert!(ran.stderr.contains("nothing ran") && ran.stderr.contains("kernel"), "{ran:?}");
    assert!(lab.upstream.take().is_empty());
    // The request names no floor; the grant's counts, and a run goes to the cheapest provider that meets it.
    let ran = lab.sandbox_as(User::Own, &["items"], &["--provider", "native,gvisor"], &command).succeeded();
    assert!(ran.stderr.contains("at tier kernel by gvisor"), "{ran:?}");
    assert_eq!(lab.upstream.take()[0].field("authorization").unwrap(), format!("Bearer {C1}"));
}

#[test]
fn f35_a_grant_for_machines_is_not_used_where_kvm_does_not_execute_them() {
    let policy = with_floor("vm");
    let Some(lab) = OWN[1].lab(&policy) else { return };
    let command = ["curl", "-sS", "--http1.1", "https://api.test/v1/items/1"];
    let ran = lab.sandbox_as(User::Own, &["items"], &["--provider", "native,microvm"], &command);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(126), ""), "{ran:?}");
    assert!(
        ran.stderr.contains("nothing ran") && ran.stderr.contains("microvm: `/nonexistent/kvm`"),
        "{ran:?}"
    );
    assert!(lab.upstream.take().is_empty());
}

/// The lab's policy, with a floor for its grant.
fn with_floor(tier: &str) -> String {
    let grant = "[grant.items]\ncallers = [\"lab\"]";
    let policy = POLICY.replace(grant, &format!("{grant}\nfloor = \"{tier}\""));
    assert_ne!(policy, POLICY, "the lab's policy has such a grant");
    policy
}

#[test]
fn f37_without_its_engine_nothing_runs_and_the_help_says_why() {
    for (provider, option, package) in
        [("gvisor", "gvisor_runsc", "runsc"), ("microvm", "microvm_qemu", "qemu-system-x86")]
    {
        without_its_engine(provider, option, package);
    }
}

fn without_its_engine(provider: &str, option: &str, package: &str) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("freeboard.toml");
    let text = format!("[sandboxd]\nproviders = [\"{provider}\"]\n{option} = \"/nonexistent/engine\"\n");
    std::fs::write(&config, text).unwrap();
    let mut run = Command::new(program("sandboxd"));
    run.arg("run").arg("--config").arg(&config).args(["--", "echo", "ran"]).env_remove("XDG_RUNTIME_DIR");
    let output = run.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), b"".as_slice()), "{stderr}");
    assert!(
        stderr.contains("nothing ran") && stderr.contains(&format!("apt-get install {package}")),
        "{stderr}"
    );
}
