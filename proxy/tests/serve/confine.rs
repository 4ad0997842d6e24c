//! The running broker's own fences, and what a start refuses that would make them worthless.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;

use crate::broker::{Lab, gate, is_root, wait_until};

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A secret that the broker's user owns.
fn secret(path: &Path) -> String {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "canary-51fe").unwrap();
    mode(path, 0o600);
    if is_root() {
        nix::unistd::chown(path, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
    }
    path.display().to_string()
}

fn policy(file: &str) -> String {
    format!(
        "[credential.c]\nkind = \"bearer\"\ntoken = {{ file = {file:?} }}\n\
         [api.one]\norigins = [\"https://api.test\"]\ncredential = \"c\"\n\
         [grant.g]\ncallers = [\"bot\"]\n[[grant.g.allow]]\napi = \"one\"\nroutes = [\"GET /v1/*\"]\n"
    )
}

/// The fences are seen from outside, and by what the broker cannot open although its user may.
#[test]
fn keeps_itself_to_its_calls_and_its_files() {
    let lab = Lab::with("reload_every = \"off\"");
    let own = secret(&lab.at("secrets/token"));
    let elsewhere = tempfile::tempdir().unwrap();
    mode(elsewhere.path(), 0o755);
    let other = secret(&elsewhere.path().join("token"));
    lab.write_policy(&policy(&own));
    let broker = lab.start();
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:"] {
        assert!(broker.status().contains(line), "`{line}` is not in {}", broker.status());
    }
    // Every thread.
    for task in std::fs::read_dir(format!("/proc/{}/task", broker.child.id())).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2"), "{status}");
    }
    if !freeboard_proxy::confine::files::is_available() {
        return eprintln!("skipped: this kernel has no Landlock");
    }
    assert!(lab.records().iter().all(|record| record["kind"] != "finding"), "its own secret can be read");
    lab.write_policy(&policy(&other));
    broker.signal(Signal::HUP);
    let detail = lab.wait_record("finding", 1)[0]["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("Permission denied") && detail.contains("start it anew"), "{detail}");
    assert!(broker.stop().success());
    // Anew, it can; and the broker that must not confine itself could all the time.
    assert!(lab.start().stop().success());
    assert_eq!(lab.wait_record("finding", 1).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confined_broker_does_all_that_it_did() {
    let lab = Lab::with(
        "reload_every = \"off\"\nconfine = \"required\"\naudit.file_size = \"64KiB\"\naudit.keep_files = 2",
    );
    if !freeboard_proxy::confine::files::is_available() {
        assert_eq!(lab.freeboard(&["serve"]).status.code(), Some(8));
        return eprintln!("skipped: this kernel has no Landlock");
    }
    let own = secret(&lab.at("secrets/token"));
    lab.write_policy(&policy(&own));
    let broker = lab.start();
    let client = broker.client().await;
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
    // A rotated secret and a rotated log: files that were not there when it confined itself.
    std::fs::rename(secret(&lab.at("secrets/next")), lab.at("secrets/token")).unwrap();
    broker.signal(Signal::HUP);
    lab.wait_record("policy_loaded", 2);
    // A note is answered before it is in the file, and a busy writer turns to a new file only after a whole batch.
    let removed = || !lab.at("audit").join(format!("audit-{:020}.jsonl", 1)).exists();
    let full = || {
        let files = lab.at("audit").read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        files.filter(|name| name.to_string_lossy().starts_with("audit-")).count()
    };
    let mut notes = 0;
    while !(full() == 2 && removed()) {
        assert!(notes < 20_000, "the log is not rotated, or old files stay: {} full files", full());
        client.note(crate::log::note(&"x".repeat(900))).await.unwrap();
        notes += 1;
    }
    client.close(&crate::broker::run_id(1)).await.unwrap();
    drop(client);
    assert!(broker.stop().success());
    assert!(!lab.output().contains("its requests will be refused"), "both secrets could be read");
    assert!(lab.verify().status.success());
}

#[test]
fn does_not_confine_itself_when_told_so_and_says_that() {
    let lab = Lab::with("confine = \"off\"");
    let broker = lab.start();
    assert!(broker.status().contains("Seccomp:\t0"), "{}", broker.status());
    assert!(lab.output().contains("does not confine itself"));
    let doctor = String::from_utf8(lab.freeboard(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("problem  confinement: off"), "{doctor}");
    let wrong = lab.freeboard(&["serve", "--set", "confine=maybe"]);
    assert_eq!(wrong.status.code(), Some(3));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("\"available\" or \"required\" or \"off\""), "{said}");
}

#[test]
fn does_not_start_with_a_secret_that_others_can_read() {
    let lab = Lab::new();
    let file = lab.at("secrets/token");
    lab.write_policy(&policy(&secret(&file)));
    mode(&file, 0o640);
    let serve = lab.freeboard(&["serve"]);
    let said = String::from_utf8(serve.stderr).unwrap();
    assert_eq!(serve.status.code(), Some(4), "{said}");
    for part in ["credential `c`", "has mode 640", "hint: "] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    assert!(!said.contains("canary-51fe"));
    mode(&file, 0o600);
    assert!(lab.start().stop().success());
}

#[test]
fn does_not_take_a_policy_that_everybody_may_write() {
    let lab = Lab::with("reload_every = \"off\"");
    let broker = lab.start();
    for (place, tight, open) in [("policy/a.toml", 0o644, 0o646), ("policy", 0o755, 0o757)] {
        mode(&lab.at(place), open);
        let before = lab.output().matches("reload refused").count();
        broker.signal(Signal::HUP);
        wait_until("the reload is refused", || {
            (lab.output().matches("reload refused").count() > before).then_some(())
        });
        let doctor = String::from_utf8(lab.freeboard(&["doctor"]).stdout).unwrap();
        assert!(doctor.contains("problem  policy: everybody may write"), "{doctor}");
        mode(&lab.at(place), tight);
    }
    assert!(broker.stop().success());
    mode(&lab.at("policy"), 0o757);
    let serve = lab.freeboard(&["serve"]);
    let said = String::from_utf8(serve.stderr).unwrap();
    assert_eq!(serve.status.code(), Some(4), "{said}");
    assert!(said.contains("everybody may write") && said.contains("chmod o-w"), "{said}");
}
