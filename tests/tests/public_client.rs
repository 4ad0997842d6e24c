//! The unmodified public client, `plimsoll-client` 0.23.0 from the package index, against the real `sandboxd serve` with
//! both providers and without a broker: it runs code, verifies records and sees typed refusals.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use freeboard_tests::broker::program;
use freeboard_tests::real::venv;
use freeboard_tests::sandbox::User;
use freeboard_tests::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

const CLIENT: &str = "plimsoll-client==0.23.0";

/// A daemon of its own, with a caller's token or open to everybody on this host.
struct Daemon {
    child: Child,
    address: String,
    token: Option<String>,
    /// Of another caller.
    other_token: Option<String>,
    folder: tempfile::TempDir,
}

/// Configured so that the caps of sessions can be reached, and rates cannot.
const CONFIG: &str = r#"
[sandboxd]
listen = "127.0.0.1:0"
providers = ["wasm", "native"]
rate_per_minute = 0
max_concurrent_per_caller = 8
max_sessions = 8
max_sessions_per_caller = 3
max_sessions_per_owner = 2
"#;

impl Daemon {
    fn start(user: User, with_token: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        // `broker` is not set: runs without grants need none.
        std::fs::write(folder.path().join("freeboard.toml"), CONFIG).unwrap();
        let token = |name: &str| {
            let output = sandboxd(user, folder.path())
                .args(["callers", "--file"])
                .arg(folder.path().join("callers.toml"))
                .args(["create", name])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let (mine, others) = (with_token.then(|| token("tester")), with_token.then(|| token("other")));
        let mut command = sandboxd(user, folder.path());
        command.args(["serve", "--ready-fd", "1", "--config"]).arg(folder.path().join("freeboard.toml"));
        if with_token {
            command.arg("--callers").arg(folder.path().join("callers.toml"));
        } else {
            command.arg("--danger-without-tokens");
        }
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        // A file that also the daemon's user may open anew, which a pipe of ours is not.
        let ready = std::fs::File::create(folder.path().join("ready")).unwrap();
        ready.set_permissions(std::fs::Permissions::from_mode(0o666)).unwrap();
        let child = command.stdout(ready).stderr(log).spawn().unwrap();
        let mut daemon = Self { child, address: String::new(), token: mine, other_token: others, folder };
        daemon.address = wait::until("sandboxd serves", || {
            assert!(daemon.child.try_wait().unwrap().is_none(), "sandboxd did not start: {}", daemon.log());
            let line = std::fs::read_to_string(daemon.folder.path().join("ready")).unwrap();
            Some(line.strip_prefix("ready ")?.strip_suffix('\n')?.to_owned())
        });
        daemon
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The client's own account of every check of the script.
    fn smoke(&self) -> Option<String> {
        self.script("../sandboxd/tests/public_client/smoke.py")
    }

    /// What a script prints that succeeds.
    fn script(&self, name: &str) -> Option<String> {
        let venv = venv("plimsoll-client", &[CLIENT])?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let mut command = Command::new(venv.join("bin/python"));
        command.arg(script).env("PLIMSOLL_URL", format!("http://{}", self.address));
        command.env_remove("PLIMSOLL_TOKEN").envs(self.token.as_ref().map(|token| ("PLIMSOLL_TOKEN", token)));
        command.envs(self.other_token.as_ref().map(|token| ("PLIMSOLL_OTHER_TOKEN", token)));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !text.contains("FAIL"), "{text}{complaint}{}", self.log());
        Some(text)
    }

    /// SIGTERM ends it, with 0.
    fn end(&mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let status = wait::until("sandboxd ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sandboxd(user: User, folder: &Path) -> Command {
    let mut command = Command::new(program("sandboxd"));
    command.stdin(Stdio::null()).env_remove("SANDBOX_PROVIDER").env_remove("SANDBOX_MIN_ISOLATION");
    if user == User::Nobody && geteuid().is_root() {
        command.uid(65534).gid(65534).env("HOME", folder).env("XDG_RUNTIME_DIR", folder);
    }
    command
}

fn works(user: User, with_token: bool) {
    let mut daemon = Daemon::start(user, with_token);
    let Some(text) = daemon.smoke() else { return };
    let mut checks =
        vec!["describe", "snippet", "deadline is a result", "floor", "software", "bad body", "project"];
    checks.extend(["cell state", "files stay", "call floor", "workspace", "chain", "close", "after close"]);
    checks.extend(with_token.then_some("wrong token"));
    for check in checks {
        assert!(text.contains(&format!("ok   {check} ")), "`{check}` was not made: {text}");
    }
    daemon.end();
}

#[test]
fn the_public_client_works_with_a_token() {
    works(User::Own, true);
}

#[test]
fn the_public_client_works_without_tokens_where_that_is_allowed() {
    works(User::Own, false);
}

#[test]
fn the_public_client_works_with_a_daemon_of_a_user_without_rights() {
    works(User::Nobody, true);
}

#[test]
fn a_change_of_the_callers_file_counts_without_a_signal() {
    let mut daemon = Daemon::start(User::Own, true);
    let status = |daemon: &Daemon| {
        use std::io::{Read as _, Write as _};
        let token = daemon.token.clone().unwrap();
        let mut stream = std::net::TcpStream::connect(&daemon.address).unwrap();
        let request = format!(
            "POST /plimsoll.v1.SandboxService/Describe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(&daemon), "200");
    let revoked = sandboxd(User::Own, daemon.folder.path())
        .args(["callers", "--file"])
        .arg(daemon.folder.path().join("callers.toml"))
        .args(["revoke", "tester"])
        .output()
        .unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    wait::until_true("the revoked token is unknown", || status(&daemon) == "401");
    daemon.end();
}

#[test]
fn nothing_of_a_session_outlives_a_killed_daemon() {
    let mut daemon = Daemon::start(User::Own, true);
    let Some(venv) = venv("plimsoll-client", &[CLIENT]) else { return };
    let leave = "import os\nfrom plimsoll_client import Client\n\
                 s = Client(os.environ['PLIMSOLL_URL'], token=os.environ['PLIMSOLL_TOKEN']).open_session()\n\
                 s.run_cell('import subprocess; 1', 'python')\nprint(s.run_cell('1', 'javascript').stdout)\n";
    let mut command = Command::new(venv.join("bin/python"));
    command.args(["-c", leave]).env("PLIMSOLL_URL", format!("http://{}", daemon.address));
    let output = command.env("PLIMSOLL_TOKEN", daemon.token.clone().unwrap()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let family = descendants(daemon.child.id());
    assert!(family.len() >= 4, "launcher, first process and two interpreters: {family:?}");
    kill(Pid::from_raw(i32::try_from(daemon.child.id()).unwrap()), Signal::SIGKILL).unwrap();
    daemon.child.wait().unwrap();
    wait::until_true("all of it is gone", || family.iter().all(|pid| !is_running(*pid)));
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Everything below a process.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found.remove(0);
    found
}

#[test]
fn the_public_client_meets_every_refusal_and_every_limit() {
    let mut daemon = Daemon::start(User::Own, true);
    let Some(text) = daemon.script("tests/public_client/conformance.py") else { return };
    assert!(text.contains("ok   conformance"), "{text}");
    daemon.end();
}

#[test]
fn the_public_client_notices_whatever_a_proxy_in_between_changes() {
    let mut daemon = Daemon::start(User::Own, true);
    let Some(text) = daemon.script("tests/public_client/tampering.py") else { return };
    assert!(text.contains("ok   tampering"), "{text}");
    daemon.end();
}
