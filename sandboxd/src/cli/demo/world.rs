//! Everything that the demo makes: a folder, the API, the broker and sandboxd. Dropping it ends the processes and
//! removes all but the policy, the audit log and the two daemons' logs.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use freeboard_wire::digest::hex;
use rustix::process::{Pid, Signal, kill_process};

use super::upstream::{self, HOST, Upstream};
use super::{Failure, say};
use crate::callers;

/// How long a daemon may take to start, and to stop before it is killed.
const START_TIMEOUT: Duration = Duration::from_secs(15);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a daemon may take to be seen once it has said its last.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Every token of the demo begins so; programs that search build it from two halves, so as not to find themselves.
pub(super) const PREFIX: (&str, &str) = ("fbdemo", "-token-");
/// The caller in whose name the demo runs programs.
pub(super) const CALLER: &str = "demo-agent";

/// A daemon's process. Its standard input is a pipe that only this process holds: should the demo be killed, the daemons see
/// the end of it and end in order.
#[derive(Debug)]
struct Daemon {
    name: &'static str,
    child: Child,
}

/// What the demo made, in the order in which it ends.
#[derive(Debug)]
pub(super) struct World {
    pub(super) folder: PathBuf,
    pub(super) freeboard: PathBuf,
    /// Address of sandboxd's API.
    pub(super) address: String,
    pub(super) caller_token: callers::Token,
    pub(super) token: String,
    pub(super) upstream: Upstream,
    sandboxd: Option<Daemon>,
    broker: Option<Daemon>,
}

impl World {
    pub(super) fn build(freeboard: PathBuf, folder: PathBuf) -> Result<Self, Failure> {
        let token = random_token()?;
        let upstream = upstream::start(&token)?;
        let private = folder.join("private");
        for (path, mode) in [(&folder, 0o755), (&private, 0o700)] {
            make_folder(path, mode)?;
        }
        // From here on dropping removes what there is.
        let mut world = Self {
            address: String::new(),
            caller_token: callers::create(&private.join("callers.toml"), CALLER)?,
            token,
            upstream,
            sandboxd: None,
            broker: None,
            freeboard,
            folder,
        };
        world.write_files()?;
        world.hand_over()?;
        world.start_broker()?;
        world.start_sandboxd()?;
        Ok(world)
    }

    pub(super) fn api(&self) -> String {
        format!("https://{HOST}:{}", self.upstream.port)
    }

    pub(super) fn audit(&self) -> PathBuf {
        self.folder.join("audit")
    }

    pub(super) fn policy(&self) -> PathBuf {
        self.folder.join("policy")
    }

    fn private(&self) -> PathBuf {
        self.folder.join("private")
    }

    fn write_files(&self) -> Result<(), Failure> {
        let private = self.private();
        make_folder(&self.policy(), 0o755)?;
        make_folder(&self.audit(), 0o700)?;
        write(&private.join("token"), 0o600, &self.token)?;
        // The CA of the API is public and stays, so that the policy can still be checked afterwards.
        write(&self.folder.join("api-ca.pem"), 0o644, &self.upstream.ca_pem)?;
        write(&self.policy().join("demo.toml"), 0o644, &self.policy_text())?;
        write(&self.folder.join("freeboard.toml"), 0o644, &self.configuration())
    }

    fn policy_text(&self) -> String {
        let (token, ca) = (self.private().join("token"), self.folder.join("api-ca.pem"));
        let mut text = format!(
            "# What the demo's programs may do. One line per permission.\n\n\
             [credential.demo-api]\nkind = \"bearer\"\ntoken = {{ file = \"{}\" }}\n\n\
             [api.demo]\norigins = [\"{}\"]\ncredential = \"demo-api\"\ntrust = {{ ca_file = \"{}\" }}\n\
             addresses = [\"127.0.0.1/32\"]\n",
            token.display(),
            self.api(),
            ca.display(),
        );
        // The same routes three times, each with another floor.
        for (name, floor) in [("demo", "process"), ("demo-container", "container"), ("demo-vm", "vm")] {
            // Writing into a string does not fail.
            let _ = write!(
                text,
                "\n[grant.{name}]\ncallers = [\"{CALLER}\"]\nfloor = \"{floor}\"\n\n[[grant.{name}.allow]]\napi = \"demo\"\n\
                 routes = [\n  \"GET  /v1/items?limit={{int}}\",\n  \"POST /v1/notes\",\n]\n"
            );
        }
        text
    }

    fn configuration(&self) -> String {
        let (folder, private) = (self.folder.display(), self.private());
        let private = private.display();
        format!(
            "[broker]\npolicy = \"{folder}/policy\"\nca_certificate = \"{private}/ca.pem\"\nca_key = \"{private}/ca-key.pem\"\n\
             control_socket = \"{private}/control.sock\"\naudit.folder = \"{folder}/audit\"\nmetrics_listen = \"off\"\n\n\
             [broker.hosts]\n\"{HOST}\" = [\"127.0.0.1\"]\n\n\
             [sandboxd]\nlisten = \"127.0.0.1:0\"\nproviders = [\"wasm\", \"native\"]\nbroker = \"{private}/control.sock\"\n\
             callers = \"{private}/callers.toml\"\n"
        )
    }

    /// As root, the broker becomes a user without rights: it gets what it has to read and write, and nothing else.
    fn hand_over(&self) -> Result<(), Failure> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let look_up = |name| nix::unistd::User::from_name(name).ok().flatten();
        let Some(user) = look_up("freeboard").or_else(|| look_up("nobody")) else { return Ok(()) };
        let private = self.private();
        for path in [&private, &private.join("token"), &self.audit()] {
            std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(())
    }

    fn start_broker(&mut self) -> Result<(), Failure> {
        let init =
            || self.freeboard(&["ca", "init", "--config"]).arg(self.folder.join("freeboard.toml")).output();
        let mut made = init()?;
        if hit_at_birth(made.status) {
            made = init()?;
        }
        if !made.status.success() {
            return Err(
                format!("`freeboard ca init` failed: {}", String::from_utf8_lossy(&made.stderr)).into()
            );
        }
        let mut command = self.freeboard(&["serve", "--ready-fd", "1", "--stop-with-stdin", "--config"]);
        command.arg(self.folder.join("freeboard.toml"));
        let (daemon, _) = self.daemon("broker", command)?;
        self.broker = Some(daemon);
        Ok(())
    }

    fn start_sandboxd(&mut self) -> Result<(), Failure> {
        let mut command = apart(&std::env::current_exe()?);
        command.args(["serve", "--ready-fd", "1", "--stop-with-stdin", "--config"]);
        command.arg(self.folder.join("freeboard.toml"));
        command.env_remove("SANDBOX_PROVIDER").env_remove("SANDBOX_MIN_ISOLATION");
        let (daemon, line) = self.daemon("sandboxd", command)?;
        self.sandboxd = Some(daemon);
        line.strip_prefix("ready ").unwrap_or_default().clone_into(&mut self.address);
        Ok(())
    }

    /// Starts a daemon and waits for its line on stdout. Its log goes into the folder.
    fn daemon(&self, name: &'static str, mut command: Command) -> Result<(Daemon, String), Failure> {
        let path = self.folder.join(format!("{name}.log"));
        let mut again = true;
        loop {
            let log = File::create(&path)?;
            let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
            let mut daemon = Daemon { name, child };
            let Some(stdout) = daemon.child.stdout.take() else { return Err("no stdout".into()) };
            // Reading blocks, so it is done beside; the thread ends with the line or with the daemon.
            let (sender, ready) = mpsc::sync_channel(1);
            std::thread::spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                let _ = sender.send(read.is_ok_and(|read| read > 0).then(|| line.trim().to_owned()));
            });
            if let Ok(Some(line)) = ready.recv_timeout(START_TIMEOUT) {
                return Ok((daemon, line));
            }
            let hit = ended_soon(&mut daemon.child).is_some_and(hit_at_birth);
            daemon.stop();
            if !(hit && std::mem::take(&mut again)) {
                let log = fs::read_to_string(&path).unwrap_or_default();
                return Err(format!("{name} did not start; it said:\n{}", log.trim_end()).into());
            }
        }
    }

    /// The broker's binary with these arguments.
    pub(super) fn freeboard(&self, arguments: &[&str]) -> Command {
        let mut command = apart(&self.freeboard);
        command.args(arguments);
        command
    }

    /// Lines that `freeboard` prints; an error is shown instead of hidden.
    pub(super) fn tool(&self, arguments: &[&str]) -> Vec<String> {
        match self.freeboard(arguments).arg("--audit").arg(self.audit()).output() {
            Ok(output) => {
                let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
                String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
            }
            Err(error) => vec![format!("cannot run {}: {error}", self.freeboard.display())],
        }
    }
}

impl Daemon {
    /// SIGTERM, a moment, SIGKILL.
    fn stop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| matches!(self.child.try_wait(), Ok(None))) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        say(&format!("{} did not stop in time and is killed", self.name));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl World {
    /// Ends the daemons; the log is whole then.
    pub(super) fn stop(&mut self) {
        for daemon in [self.sandboxd.take(), self.broker.take()].iter_mut().flatten() {
            daemon.stop();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
        // Keys, tokens and sockets go; policy and log stay.
        if let Err(error) = fs::remove_dir_all(self.private()) {
            say(&format!("cannot remove {}: {error}", self.private().display()));
        }
    }
}

/// A program in a process group of its own: Ctrl-C is for the demo alone, which then ends all others in order.
fn apart(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    command
}

/// How a daemon ended whose output has ended: its files are closed a moment before its end can be seen.
fn ended_soon(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// A signal for the demo's process group ended a child of it before the child had a group of its own. The demo has had the
/// signal too and ends in order by it, once all that it will stop has been started.
fn hit_at_birth(status: ExitStatus) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP].iter().any(|signal| status.signal() == Some(signal.as_raw()))
}

/// A token that is easy to search for and hard to guess.
pub(super) fn random_token() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| "no random bytes from the operating system")?;
    Ok(format!("{}{}{}", PREFIX.0, PREFIX.1, hex(&bytes)))
}

/// A new folder with this mode whatever the umask says: the broker's own user must get through.
fn make_folder(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::DirBuilder::new().mode(mode).create(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn write(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(mode).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(file.write_all(text.as_bytes())?)
}
