//! A broker on temporary folders.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use freeboard_control::{Client, Evidence, OpenGate, PrepareRun};
use freeboard_policy::Tier;
use serde_json::Value;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const POLICY: &str = r#"
[api.one]
origins = ["https://api.test"]

[grant.g]
callers = ["bot"]
[[grant.g.allow]]
api = "one"
routes = ["GET /v1/items/*"]

[grant.strong]
callers = ["bot"]
floor = "vm"
[[grant.strong.allow]]
api = "one"
routes = ["GET /v1/strong"]
"#;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn wait_until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Folders with a policy, a CA and a configuration; everything may be read by everybody, as the broker becomes `nobody`.
pub(crate) struct Lab {
    pub(crate) folder: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With more lines in `[broker]`.
    pub(crate) fn with(more: &str) -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::set_permissions(lab.path(), PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::create_dir(lab.at("policy")).unwrap();
        lab.write_policy(POLICY);
        lab.configure(more);
        let made = lab.freeboard(&["ca", "init"]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        lab
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write_policy(&self, text: &str) {
        std::fs::write(self.at("policy/a.toml"), text).unwrap();
    }

    pub(crate) fn configure(&self, more: &str) {
        let at = |name: &str| self.at(name).display().to_string();
        let text = format!(
            "[broker]\npolicy = {:?}\nca_certificate = {:?}\nca_key = {:?}\ncontrol_socket = {:?}\naudit.folder = {:?}\nmetrics_listen = \"off\"\n{more}\n",
            at("policy"),
            at("ca.pem"),
            at("ca-key.pem"),
            at("run/control.sock"),
            at("audit"),
        );
        std::fs::write(self.at("freeboard.toml"), text).unwrap();
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freeboard"));
        command.args(words).arg("--config").arg(self.at("freeboard.toml")).stdin(Stdio::null());
        command
    }

    pub(crate) fn freeboard(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub(crate) fn start(&self) -> Broker<'_> {
        self.start_with(self.command(&["serve"]))
    }

    pub(crate) fn start_with(&self, mut command: Command) -> Broker<'_> {
        let ready_before = self.output().matches("freeboard: ready").count();
        let output = std::fs::File::options().create(true).append(true).open(self.at("output")).unwrap();
        let child = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let mut broker = Broker { lab: self, child };
        wait_until("the broker is ready", || {
            let ended = broker.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?}: {}", self.output());
            (self.output().matches("freeboard: ready").count() > ready_before).then_some(())
        });
        broker
    }

    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.at("output")).unwrap_or_default()
    }

    /// All complete records.
    pub(crate) fn records(&self) -> Vec<Value> {
        let folder = self.at("audit");
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        let text: String = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    pub(crate) fn wait_record(&self, kind: &str, count: usize) -> Vec<Value> {
        wait_until(&format!("{count} {kind} records"), || {
            let found: Vec<Value> =
                self.records().into_iter().filter(|record| record["kind"] == kind).collect();
            (found.len() >= count).then_some(found)
        })
    }

    pub(crate) fn verify(&self) -> Output {
        self.freeboard(&["audit", "verify"])
    }
}

pub(crate) struct Broker<'a> {
    lab: &'a Lab,
    pub(crate) child: Child,
}

impl Broker<'_> {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait_end()
    }

    pub(crate) fn wait_end(&mut self) -> ExitStatus {
        wait_until("the broker ends", || self.child.try_wait().unwrap())
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.lab.at("run/control.sock")).await.unwrap()
    }

    pub(crate) fn status(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap()
    }
}

impl Drop for Broker<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the broker said:\n{}", self.lab.output());
        }
    }
}

pub(crate) fn run_id(number: u8) -> String {
    format!("{number:032x}")
}

pub(crate) fn gate(run: u8, grants: &[&str]) -> OpenGate {
    OpenGate {
        run: run_id(run),
        caller: Some("bot".to_owned()),
        grants: grants.iter().map(|grant| (*grant).to_owned()).collect(),
        evidence: Evidence { provider: "test".to_owned(), tier: Tier::Container, facts: Vec::new() },
        expires_unix_ms: u64::MAX,
        trace_id: None,
        session: None,
        doors: Vec::new(),
    }
}

pub(crate) fn prepare(caller: &str, grants: &[&str]) -> PrepareRun {
    PrepareRun {
        caller: Some(caller.to_owned()),
        grants: grants.iter().map(|grant| (*grant).to_owned()).collect(),
        session: false,
    }
}
