//! The clients of freeboard.v1 in Python, TypeScript, Go and Rust, each against this daemon.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use freeboard_client::{
    Client, Ending, Error, Executed, File, Program, Requests, Start, State, Stdin, Taken, Variable, check,
};
use freeboard_wire::digest::sha256_hex;
use support::{Act, Daemon, Setup};

/// What every scenario must print.
const WORDS: [&str; 10] =
    ["result", "key", "files", "refused", "follow", "cancel", "callers", "stdin", "tampering", "url"];
const TYPESCRIPT: [&str; 2] = ["typescript@5.9", "@types/node@20"];

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a scenario that finds daemon and token in its environment.
async fn scenario(mut command: Command) {
    let daemon = Setup { host: true, ..Setup::new(Act::Hang) }.start().await;
    command.env("URL", format!("http://{}", daemon.address)).env("TOKEN", &daemon.alice);
    command.env("ADMIN", daemon.admit("admin", &["code:admin"]));
    let output = tokio::process::Command::from(command).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for word in WORDS {
        assert!(text.contains(&format!("ok {word}\n")), "no {word} in:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python() {
    let mut command = Command::new("python3");
    command.arg("-B").arg(manifest().join("tests/own_clients/scenario.py"));
    command.env("CLIENT", manifest().join("clients/python"));
    scenario(command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go() {
    let folder = tempfile::tempdir().unwrap();
    let client = manifest().join("clients/go");
    let module = format!(
        "module scenario\n\ngo 1.19\n\nrequire freeboard v0.0.0\n\nreplace freeboard => {}\n",
        client.display()
    );
    std::fs::write(folder.path().join("go.mod"), module).unwrap();
    std::fs::copy(manifest().join("tests/own_clients/scenario.go"), folder.path().join("main.go")).unwrap();
    let mut command = Command::new("go");
    command.args(["run", "."]).current_dir(folder.path()).env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
    scenario(command).await;
}

/// The TypeScript compiler; `None`, loudly, where npm does not give it.
fn compiler() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("npm-client");
    let compiler = folder.join("node_modules/typescript/bin/tsc");
    let is_there = || compiler.exists() && folder.join("node_modules/@types/node").exists();
    if !is_there() {
        std::fs::create_dir_all(&folder).unwrap();
        let install = ["install", "--no-save", "--no-audit", "--no-fund", "--silent", "--prefix"];
        let got = Command::new("npm").args(install).arg(&folder).args(TYPESCRIPT).status();
        if !(got.is_ok_and(|status| status.success()) && is_there()) {
            eprintln!("SKIPPED: npm does not give {TYPESCRIPT:?}");
            return None;
        }
    }
    Some(compiler)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript() {
    let Some(compiler) = compiler() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::copy(manifest().join("clients/typescript/freeboard.ts"), at("freeboard.ts")).unwrap();
    std::fs::copy(manifest().join("tests/own_clients/scenario.ts"), at("scenario.ts")).unwrap();
    std::fs::write(at("package.json"), r#"{"type":"module"}"#).unwrap();
    let types = compiler.ancestors().nth(3).unwrap().join("@types");
    let compiled = Command::new("node")
        .arg(&compiler)
        .args(["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--typeRoots"])
        .arg(types)
        .args(["--skipLibCheck", "scenario.ts"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    let mut command = Command::new("node");
    command.arg(at("scenario.js"));
    scenario(command).await;
}

async fn client() -> (Daemon, Client) {
    let daemon = Setup { host: true, ..Setup::new(Act::Hang) }.start().await;
    let client = Client::new(&format!("http://{}", daemon.address), &daemon.alice).unwrap();
    (daemon, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust() {
    let (daemon, client) = client().await;
    let code = "import os,sys; sys.stdout.write(os.environ['A']); sys.exit(3)";
    let mut one = Start::of(Program::Python(code.to_owned())).floor("container").key("one");
    one.request.environment = vec![Variable { name: "A".to_owned(), value: "b".to_owned() }];
    let first = client.run(one.clone()).await.unwrap();
    let step = &first.result.as_ref().unwrap().steps[0];
    assert_eq!((step.stdout.as_slice(), step.exit_code, first.executed), (b"b".as_slice(), 3, Executed::Yes));
    assert_eq!(client.run(one).await.unwrap(), first);
    assert_eq!(client.get_by_key("one").await.unwrap(), first);

    let content: Vec<u8> = (0..=255).collect();
    let mut copy = Start::of(Program::Shell("cp in.bin out.bin".to_owned()));
    copy.request.files = vec![File { path: "in.bin".to_owned(), content: content.clone() }];
    copy.request.artifacts = vec!["out.bin".to_owned()];
    let copied = client.run(copy).await.unwrap();
    assert_eq!(copied.result.unwrap().artifacts, [File { path: "out.bin".to_owned(), content }]);

    let reason = |error: Error| match error {
        Error::Refused { reason, .. } => reason,
        other => panic!("{other}"),
    };
    let weak = client.run(Start::of(Program::Shell("true".to_owned())).floor("kernel")).await;
    assert_eq!(reason(weak.unwrap_err()), "isolation");
    assert_eq!(reason(client.get(&"0".repeat(32)).await.unwrap_err()), "request");
    let stranger = Client::new(&format!("http://{}", daemon.address), "wrong").unwrap();
    assert_eq!(reason(stranger.list(None).await.unwrap_err()), "permission");

    let (hello, _) = client.start(&Start::of(command(&["printf", "hello"]))).await.unwrap();
    let mut text = Vec::new();
    client.follow(&hello.run, |_, data| text.extend_from_slice(data)).await.unwrap();
    assert_eq!(text, b"hello");
    let (sleeping, _) = client.start(&Start::of(command(&["sleep", "600"]))).await.unwrap();
    let listed = client.list(None).await.unwrap();
    assert_eq!(listed[0].run, sleeping.run);
    let cancelled = client.cancel(&sleeping.run).await.unwrap();
    assert_eq!((cancelled.state, cancelled.ending), (State::Ended, Some(Ending::Cancelled)));
    let standing = client.limits(false).await.unwrap();
    let own = &standing.callers[0];
    assert_eq!((own.caller.as_str(), own.standing.running, standing.daemon), ("alice", 0, None));
    let administrator = daemon.admit("admin", &["code:admin"]);
    let administrator = Client::new(&format!("http://{}", daemon.address), &administrator).unwrap();
    assert!(administrator.limits(true).await.unwrap().daemon.is_some());
    let theirs = administrator.list_everybody(Some(State::Ended)).await.unwrap();
    assert_eq!((theirs[0].run.as_str(), theirs[0].caller.as_deref()), (sleeping.run.as_str(), Some("alice")));
    assert_eq!(reason(client.limits(true).await.unwrap_err()), "permission");
    assert_eq!(reason(client.list_everybody(None).await.unwrap_err()), "permission");
    assert_eq!(
        reason(client.grants(&["none".to_owned()]).await.unwrap_err()),
        "unsupported",
        "without a broker"
    );
    let mut fed = Start::of(command(&["cat"]));
    fed.request.stdin = Some(Stdin { data: b"one ".to_vec(), open: true });
    fed.request.limits.output_bytes = 8;
    let (cat, _) = client.start(&fed).await.unwrap();
    assert_eq!(client.write(&cat.run, 4, b"two ", false).await.unwrap(), 8);
    assert_eq!(client.write(&cat.run, 4, b"two three", true).await.unwrap(), 13);
    client.follow(&cat.run, |_, _| {}).await.unwrap();
    let result = client.get(&cat.run).await.unwrap().result.unwrap();
    assert_eq!(result.steps[0].stdout, b"one two ");
    assert_eq!(result.stdin.unwrap(), Taken { bytes: 13, sha256: sha256_hex(b"one two three") });
    let mut large = Start::of(Program::Shell("true".to_owned()));
    large.request.limits.memory_mib = 1 << 20;
    assert_eq!(reason(client.run(large).await.unwrap_err()), "unsupported");
    assert!(matches!(Client::new("http://example.test", "x"), Err(Error::Url(_))));
    assert!(!format!("{client:?}").contains(&daemon.alice), "a token is not printed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rust_believes_no_changed_answer() {
    let (_daemon, client) = client().await;
    let mut start = Start::of(Program::Shell("echo x".to_owned()));
    start.wait = std::time::Duration::from_secs(20);
    let (run, sent) = client.start(&start).await.unwrap();
    assert_eq!(check(run.clone(), &sent, "container").unwrap(), run);
    let mut changed = vec![run.clone(); 7];
    changed[0].result.as_mut().unwrap().steps[0].stdout = b"y".to_vec();
    changed[1].record.as_mut().unwrap().isolation = "vm".to_owned();
    changed[2].record.as_mut().unwrap().run = "other".to_owned();
    changed[3].record = None;
    changed[4].ending = Some(Ending::TimedOut);
    changed[5].result.as_mut().unwrap().requests = Some(Requests::default());
    changed[6].result.as_mut().unwrap().stdin = Some(Taken::default());
    for changed in changed {
        assert!(matches!(check(changed, &sent, ""), Err(Error::Failed { .. })));
    }
    assert!(matches!(check(run.clone(), b"other", ""), Err(Error::Failed { .. })));
    assert!(matches!(check(run, &sent, "vm"), Err(Error::Failed { .. })));
}

fn command(words: &[&str]) -> Program {
    Program::Command(words.iter().map(|word| (*word).to_owned()).collect())
}
