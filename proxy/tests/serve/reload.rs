//! Reloading: on SIGHUP and on file change, and what does not load changes nothing.

use rustix::process::Signal;

use crate::broker::{Lab, POLICY, prepare};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g15_what_does_not_load_keeps_the_last_good_policy_and_is_recorded() {
    let lab = Lab::with("reload_every = \"off\"");
    let broker = lab.start();
    let client = broker.client().await;
    let digest = client.prepare(prepare("bot", &["g"])).await.unwrap().policy_digest;
    let broken: [&str; 4] = ["[grant.g\n", "[grant.g]\nfloor = \"steel\"\n", "", "\u{0}"];
    for (index, text) in broken.iter().enumerate() {
        lab.write_policy(text);
        broker.signal(Signal::HUP);
        let refused = lab.wait_record("reload_refused", index + 1);
        assert_eq!(refused[index]["policy"], digest.as_str(), "the policy that stays");
        assert_eq!(client.prepare(prepare("bot", &["g"])).await.unwrap().policy_digest, digest);
    }
    std::fs::remove_dir_all(lab.at("policy")).unwrap();
    broker.signal(Signal::HUP);
    let refused = lab.wait_record("reload_refused", 5);
    assert!(refused[4]["detail"].as_str().unwrap().contains("cannot read policy"), "{}", refused[4]);
    assert_eq!(client.prepare(prepare("bot", &["g"])).await.unwrap().policy_digest, digest);
    assert!(lab.output().contains("reload refused, the last good policy stays"));
    // Positive control: a good one is taken.
    std::fs::create_dir(lab.at("policy")).unwrap();
    lab.write_policy(&POLICY.replace("items", "things"));
    broker.signal(Signal::HUP);
    lab.wait_record("policy_loaded", 2);
    assert_ne!(client.prepare(prepare("bot", &["g"])).await.unwrap().policy_digest, digest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_takes_effect_without_a_signal() {
    let lab = Lab::with("reload_every = \"100ms\"");
    let broker = lab.start();
    let client = broker.client().await;
    assert!(client.prepare(prepare("bot", &["late"])).await.is_err());
    std::fs::write(
        lab.at("policy/b.toml"),
        "[grant.late]\ncallers = [\"bot\"]\n[[grant.late.allow]]\napi = \"one\"\nroutes = [\"GET /v1/late\"]\n",
    )
    .unwrap();
    let loaded = lab.wait_record("policy_loaded", 2);
    assert_eq!(
        (loaded[1]["cause"].as_str(), loaded[1]["generation"].as_u64()),
        (Some("file_change"), Some(2))
    );
    client.prepare(prepare("bot", &["late"])).await.unwrap();
    // A broken change is refused once, not at every look.
    std::fs::write(lab.at("policy/b.toml"), "[grant.late\n").unwrap();
    lab.wait_record("reload_refused", 1);
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(lab.records().iter().filter(|record| record["kind"] == "reload_refused").count(), 1);
    client.prepare(prepare("bot", &["late"])).await.unwrap();
}

#[test]
fn the_commit_of_the_policy_folder_is_in_every_record() {
    let lab = Lab::with("reload_every = \"off\"");
    let git = |words: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-C"])
            .arg(lab.at("policy"))
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q"]);
    git(&["add", "a.toml"]);
    git(&["commit", "-q", "-m", "one"]);
    let head = git(&["rev-parse", "HEAD"]);
    let broker = lab.start();
    assert_eq!(lab.wait_record("policy_loaded", 1)[0]["commit"], head.as_str());
    lab.write_policy(&POLICY.replace("items", "things"));
    broker.signal(Signal::HUP);
    assert_eq!(lab.wait_record("policy_loaded", 2)[1]["commit"], format!("{head}+dirty").as_str());
    git(&["commit", "-q", "-a", "-m", "two"]);
    git(&["pack-refs", "--all"]);
    broker.signal(Signal::HUP);
    assert_eq!(lab.wait_record("policy_loaded", 3)[2]["commit"], git(&["rev-parse", "HEAD"]).as_str());
}

/// Said at the start and at each reload, not only when a request needs it; and mended without either.
#[test]
fn a_secret_that_cannot_be_used_is_a_finding_at_once() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::with("reload_every = \"off\"");
    let file = |name: &str, mode: u32| {
        let path = lab.at(name);
        std::fs::write(&path, "canary-9f27").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        if crate::broker::is_root() {
            nix::unistd::chown(&path, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
        }
        path.display().to_string()
    };
    let policy = |open: &str, good: &str| {
        let credential =
            |name: &str, source: &str| format!("[credential.{name}]\nkind = \"bearer\"\ntoken = {source}\n");
        let api = |name: &str| {
            format!(
                "[api.{name}]\norigins = [\"https://{name}.test\"]\ncredential = \"{name}\"\n\
                 [[grant.g.allow]]\napi = \"{name}\"\nroutes = [\"GET /x\"]\n"
            )
        };
        let names = ["open", "good", "gone", "unset", "helper"];
        let sources = [
            format!("{{ file = {open:?} }}"),
            format!("{{ file = {good:?} }}"),
            format!("{{ file = {:?} }}", lab.at("gone").display().to_string()),
            "{ env = \"FREEBOARD_TEST_UNSET\" }".to_owned(),
            format!("{{ exec = [\"/bin/touch\", {:?}] }}", lab.at("helper-ran").display().to_string()),
        ];
        let text: String =
            names.iter().zip(&sources).map(|(name, source)| credential(name, source)).collect();
        format!("{text}[grant.g]\ncallers = [\"bot\"]\n{}", names.map(api).concat())
    };
    let (open, good) = (file("open", 0o600), file("good", 0o600));
    lab.write_policy(&policy(&open, &good));
    let broker = lab.start();
    let findings = lab.wait_record("finding", 2);
    let names: Vec<_> = findings.iter().map(|finding| finding["credential"].as_str().unwrap()).collect();
    assert_eq!(names, ["gone", "unset"]);
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
    broker.signal(Signal::HUP);
    let findings = lab.wait_record("finding", 5).split_off(2);
    let said = |name: &str| {
        let found = findings.iter().find(|finding| finding["credential"] == name);
        found.map(|finding| {
            assert_eq!(
                (finding["severity"].as_str(), finding["code"].as_str()),
                (Some("error"), Some("credential_unavailable"))
            );
            finding["detail"].as_str().unwrap().to_owned()
        })
    };
    assert!(said("open").unwrap().contains("has mode 644"), "{findings:?}");
    assert!(said("gone").unwrap().contains("No such file"), "{findings:?}");
    assert!(said("unset").unwrap().contains("`FREEBOARD_TEST_UNSET` is not set"), "{findings:?}");
    assert_eq!((said("good"), said("helper"), findings.len()), (None, None, 3));
    assert!(!lab.at("helper-ran").exists(), "a helper was run without need");
    // `doctor` says the same.
    let doctor = lab.freeboard(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(1), "{text}");
    let line = text
        .lines()
        .find(|line| line.starts_with("problem  credentials: "))
        .unwrap_or_else(|| panic!("{text}"));
    for part in ["`open`", "mode 644", "`gone`", "`unset`"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains("`good`") && !text.contains("canary-9f27"), "{text}");
    // A reload looks again.
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o600)).unwrap();
    broker.signal(Signal::HUP);
    let findings = lab.wait_record("finding", 7);
    let names: Vec<_> = findings[5..].iter().map(|finding| finding["credential"].as_str().unwrap()).collect();
    assert_eq!(names, ["gone", "unset"]);
    assert!(!lab.output().contains("canary-9f27"));
}
