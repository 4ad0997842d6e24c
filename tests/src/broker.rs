//! The real broker as a process.

use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, chown};

use crate::audit::AuditLog;
use crate::network::Network;
use crate::upstream::{HOSTS, address_of};
use crate::wait;

/// Uid of the broker in tests run as root: it needs no right at all.
const NOBODY: u32 = 65534;

/// `freeboard serve` on temporary folders. Killed when dropped.
#[derive(Debug)]
pub struct BrokerProcess {
    child: Child,
    folder: PathBuf,
}

/// Where the lab's guard listens, at an address of the world, and the name in its certificate.
pub const GUARD: &str = "10.77.0.8:9443";
pub const GUARD_NAME: &str = "guard.test";

/// The path of one of the workspace's programs, which must have been built.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join(name);
    assert!(path.exists(), "`{}` is not built: cargo build --workspace --bins", path.display());
    path
}

/// How the broker of a test resolves names.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names<'a> {
    /// Names besides the lab's hosts, with an address each.
    pub fixed: &'a [(&'a str, &'a str)],
    /// A name that is not in the configuration, and the server that the host would be asking for it.
    pub by_dns: Option<(&'a str, IpAddr)>,
    /// More tables of the configuration; `FOLDER` in it is replaced.
    pub more: &'a str,
}

impl BrokerProcess {
    /// Writes a configuration into `folder`, which holds the policy, and starts the broker in `world`.
    pub fn start(world: &Network, folder: &Path, names: &Names<'_>) -> Self {
        std::fs::write(folder.join("freeboard.toml"), config(folder, names)).unwrap();
        if let Some((_, server)) = names.by_dns {
            std::fs::write(folder.join("resolv.conf"), format!("nameserver {server}\n")).unwrap();
        }
        let mut broker = Self { child: Self::spawn(world, folder), folder: folder.to_owned() };
        broker.wait_ready();
        broker
    }

    fn spawn(world: &Network, folder: &Path) -> Child {
        for name in ["state", "run"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        if !folder.join("state/ca/ca.pem").exists() {
            let mut init = command(folder, &["ca", "init"]);
            let status = init.status().unwrap();
            let said = std::fs::read_to_string(folder.join("output")).unwrap_or_default();
            assert!(status.success(), "no authority was made: {said}");
        }
        let mut serve = command(folder, &["serve"]);
        let resolver = folder.join("resolv.conf");
        world.enter(|| {
            if resolver.exists() {
                replace_here(&resolver, "/etc/resolv.conf");
            }
            serve.spawn().unwrap()
        })
    }

    fn wait_ready(&mut self) {
        let socket = self.control_socket();
        wait::until("the broker serves", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the broker ended at once ({status}): {}", String::from_utf8_lossy(&self.output()));
            }
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
    }

    /// Starts it again on the same folders.
    pub fn restart(&mut self, world: &Network) {
        self.child = Self::spawn(world, &self.folder);
        self.wait_ready();
    }

    pub fn control_socket(&self) -> PathBuf {
        self.folder.join("run").join("control.sock")
    }

    pub fn audit_folder(&self) -> PathBuf {
        self.folder.join("state").join("audit")
    }

    pub fn config_file(&self) -> PathBuf {
        self.folder.join("freeboard.toml")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Tells it to read the policy again and waits until it has said what came of it.
    pub fn reload(&self) {
        let log = AuditLog::new(&self.audit_folder());
        let told = |log: &AuditLog| {
            let of_reload = |record: &serde_json::Value| {
                record["kind"] == "policy_loaded" || record["kind"] == "reload_refused"
            };
            log.records().iter().filter(|record| of_reload(record)).count()
        };
        let before = told(&log);
        self.signal(Signal::SIGHUP);
        wait::until_true("the broker has read the policy again", || told(&log) > before);
    }

    /// Kills it without a word and waits.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    pub fn wait_end(&mut self) -> ExitStatus {
        wait::until("the broker ends", || self.child.try_wait().unwrap())
    }

    /// Everything it has printed.
    pub fn output(&self) -> Vec<u8> {
        std::fs::read(self.folder.join("output")).unwrap_or_default()
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the broker said:\n{}", String::from_utf8_lossy(&self.output()));
        }
    }
}

/// A command of the broker's program, as the broker's user, with its output kept.
fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program("freeboard"));
    command.args(words).arg("--config").arg(folder.join("freeboard.toml")).stdin(Stdio::null());
    let output = std::fs::File::options().create(true).append(true).open(folder.join("output")).unwrap();
    command.stdout(output.try_clone().unwrap()).stderr(output);
    if Uid::effective().is_root() {
        hand_over(folder);
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Gives a folder and what is in it to the broker's user.
pub(crate) fn hand_over(path: &Path) {
    chown(path, Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY))).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap().path();
            if !entry.is_symlink() {
                hand_over(&entry);
            }
        }
    }
}

/// Shows a file in place of another, to this thread and what it starts.
fn replace_here(file: &Path, place: &str) {
    use nix::mount::{MsFlags, mount};
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some(file), place, none, MsFlags::MS_BIND, none).unwrap();
}

/// The configuration of the lab's broker: everything in the folder, names of the lab resolved without DNS.
fn config(folder: &Path, names: &Names<'_>) -> String {
    use std::fmt::Write as _;
    let at = |name: &str| folder.join(name).display().to_string();
    let mut text = format!(
        "[broker]\npolicy = \"{}\"\nca_certificate = \"{}\"\nca_key = \"{}\"\ncontrol_socket = \"{}\"\n\
         reload_every = \"off\"\ngrace = \"2s\"\nguard_listen = \"{GUARD}\"\nguard_certificate = \"{}\"\n\
         guard_key = \"{}\"\n\n[broker.audit]\nfolder = \"{}\"\n\n[broker.hosts]\n",
        at("policy"),
        at("state/ca/ca.pem"),
        at("state/ca/ca-key.pem"),
        at("run/control.sock"),
        at("guard.pem"),
        at("guard-key.pem"),
        at("state/audit"),
    );
    for host in HOSTS.into_iter().filter(|host| names.by_dns.is_none_or(|(name, _)| name != *host)) {
        writeln!(text, "\"{host}\" = [\"{}\"]", address_of(host)).unwrap();
    }
    for (name, address) in names.fixed {
        writeln!(text, "\"{name}\" = [\"{address}\"]").unwrap();
    }
    let socket = at("run/control.sock");
    writeln!(
        text,
        "\n[sandboxd]\nproviders = [\"native\", \"wasm\"]\nbroker = \"{socket}\"\ncallers = \"{}\"",
        at("callers.toml")
    )
    .unwrap();
    text + "\n" + &names.more.replace("FOLDER", folder.to_str().unwrap())
}
