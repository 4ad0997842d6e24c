//! P1, P4, P7 on gVisor: a program in a kernel of its own reaches a granted API with an injected credential, and nothing
//! else. Attack classes D and F.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::process::Command;

use freeboard_tests::broker::program;
use freeboard_tests::lab::{C1, Lab, POLICY};
use freeboard_tests::sandbox::{Ran, User};

/// Both providers; a run goes to the cheapest that meets every floor.
const BOTH: [&str; 2] = ["--provider", "native,gvisor"];

/// The lab, where gVisor can run with a gate: as root, with `runsc`.
fn lab(policy: &str) -> Option<Lab> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: gVisor runs with a gate need root");
        return None;
    }
    if !std::path::Path::new("/usr/bin/runsc").exists() {
        eprintln!("SKIPPED: `runsc` is not installed (tests/run installs it)");
        return None;
    }
    Lab::start_with(policy, &[])
}

fn gvisor(lab: &Lab, grants: &[&str], command: &[&str]) -> Ran {
    lab.sandbox_as(User::Own, grants, &[BOTH[0], BOTH[1], "--floor", "kernel"], command)
}

#[test]
fn curl_in_gvisor_gets_the_credential_injected_and_every_other_way_refused() {
    let Some(lab) = lab(POLICY) else { return };
    let ran =
        gvisor(&lab, &["items"], &["curl", "-sS", "--http1.1", "https://api.test/v1/items/1"]).succeeded();
    assert!(ran.stdout.contains("/v1/items/1"), "{ran:?}");
    assert!(ran.stderr.contains("at tier kernel by gvisor"), "{ran:?}");
    let recorded = lab.upstream.take();
    assert_eq!(recorded[0].field("authorization").unwrap(), format!("Bearer {C1}"));

    let script = "curl -sS -w '\\n%{http_code}\\n' https://api.test/v1/admin; \
                  curl -sS https://evil.test/; echo $?; \
                  curl -sSk -m 10 https://1.1.1.1/ -w '%{http_code}\\n' | tail -n 1; \
                  curl -sS -m 10 http://169.254.169.254/latest/ -o /dev/null -w '%{http_code}\\n'";
    let ran = gvisor(&lab, &["items"], &["/bin/sh", "-c", script]);
    assert!(ran.stdout.contains("no_rule") && ran.stdout.contains("\n403\n6\n"), "{ran:?}");
    assert!(!ran.stdout.contains("\n200"), "{ran:?}");
    assert!(lab.upstream.take().is_empty(), "{ran:?}");
}

#[test]
fn a_grant_with_a_floor_is_used_in_gvisor_and_not_below() {
    let policy = POLICY.replace(
        "[grant.items]\ncallers = [\"lab\"]",
        "[grant.items]\ncallers = [\"lab\"]\nfloor = \"kernel\"",
    );
    assert_ne!(policy, POLICY, "the lab's policy has such a grant");
    let Some(lab) = lab(&policy) else { return };
    let command = ["curl", "-sS", "--http1.1", "https://api.test/v1/items/1"];
    let ran = lab.sandbox_as(User::Own, &["items"], &["--provider", "native"], &command);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(126), ""), "{ran:?}");
    assert!(ran.stderr.contains("nothing ran") && ran.stderr.contains("kernel"), "{ran:?}");
    assert!(lab.upstream.take().is_empty());
    // The request names no floor; the grant's counts.
    let ran = lab.sandbox_as(User::Own, &["items"], &BOTH, &command).succeeded();
    assert!(ran.stderr.contains("at tier kernel by gvisor"), "{ran:?}");
    assert_eq!(lab.upstream.take()[0].field("authorization").unwrap(), format!("Bearer {C1}"));
}

#[test]
fn f37_without_runsc_nothing_runs_and_the_help_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("freeboard.toml");
    std::fs::write(&config, "[sandboxd]\nproviders = [\"gvisor\"]\ngvisor_runsc = \"/nonexistent/runsc\"\n")
        .unwrap();
    let mut run = Command::new(program("sandboxd"));
    run.arg("run").arg("--config").arg(&config).args(["--", "echo", "ran"]).env_remove("XDG_RUNTIME_DIR");
    let output = run.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), b"".as_slice()), "{stderr}");
    assert!(stderr.contains("nothing ran") && stderr.contains("apt-get install runsc"), "{stderr}");
}
