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
