//! P10: `sandboxd demo`, as root and as an ordinary user, to its end and interrupted: it holds what it says and leaves
//! nothing but the folder that it names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use freeboard_tests::broker::program;
use freeboard_tests::sandbox::User;
use freeboard_tests::wait;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// One demo at a time in this process, which adopts what a demo leaves behind.
static ALONE: Mutex<()> = Mutex::new(());

/// A process that was killed just before the demo ended may still be on its way out.
const SOON: Duration = Duration::from_secs(1);
/// What daemons may take to end in order: runs end at once, as their caller is gone.
const DRAINED: Duration = Duration::from_secs(10);

/// What a demo could leave on the machine, and where it was started.
struct Place {
    folder: tempfile::TempDir,
    before: BTreeSet<String>,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Orphans of the demo become children of this process, so that none can hide.
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self { folder, before: kept_things(), _alone: alone }
    }

    fn demo(&self) -> PathBuf {
        self.folder.path().join("demo")
    }

    /// Starts the demo in a process group of its own, as a terminal would.
    fn start(&self, user: User) -> Child {
        let mut command = Command::new(program("sandboxd"));
        command.args(["demo", "--folder"]).arg(self.demo());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if user == User::Nobody {
            command.env_remove("HOME").env_remove("XDG_RUNTIME_DIR").current_dir("/");
            if nix::unistd::geteuid().is_root() {
                // `Command::uid` also drops the supplementary groups.
                command.uid(65534).gid(65534);
            }
        }
        command.spawn().unwrap()
    }

    /// Nothing runs, is mounted or limited any more, and the folder holds what it should.
    fn assert_clean(&self) {
        self.assert_nothing_lives_on(SOON);
        let names: BTreeSet<_> =
            fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, BTreeSet::from(["demo".into()]), "nothing beside the folder");
        assert!(self.demo().join("policy/demo.toml").is_file(), "the policy is left");
        assert!(!self.demo().join("private").exists(), "keys, tokens and sockets are gone");
        assert_no_token(&self.demo());
    }

    fn assert_nothing_lives_on(&self, within: Duration) {
        let begun = Instant::now();
        wait::until_true("the last processes have ended", || {
            reap();
            children().is_empty() || begun.elapsed() > within
        });
        let left = children();
        assert!(left.is_empty(), "processes are left: {left:#?}");
        let named = processes_that_name(&self.demo());
        assert!(named.is_empty(), "processes that know the folder are left: {named:#?}");
        // Other tests come and go meanwhile; what is the demo's would stay.
        wait::until_true("no mount, namespace, link or control group is new", || {
            kept_things().difference(&self.before).next().is_none()
        });
    }

    fn assert_log_verifies(&self) {
        let verified = Command::new(program("freeboard"))
            .args(["audit", "verify", "--audit"])
            .arg(self.demo().join("audit"))
            .output()
            .unwrap();
        assert!(verified.status.success(), "{verified:?}");
        assert!(
            String::from_utf8_lossy(&verified.stdout).starts_with("verified up to record "),
            "{verified:?}"
        );
    }
}

/// Mounts (also of namespaces), named network namespaces, network links and control groups of this machine.
fn kept_things() -> BTreeSet<String> {
    let mut things: BTreeSet<String> = fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .map(|line| format!("mount {line}"))
        .collect();
    for folder in ["/run/netns", "/sys/class/net"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            things.insert(entry.path().display().to_string());
        }
    }
    groups(Path::new("/sys/fs/cgroup"), &mut things);
    things
}

fn groups(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && !of_the_living(&entry.file_name().to_string_lossy())
        {
            into.insert(entry.path().display().to_string());
            groups(&entry.path(), into);
        }
    }
}

/// Whether this is the group of a run (`run-PID-ID`) whose launcher lives: another test's.
fn of_the_living(name: &str) -> bool {
    let owner = name.strip_prefix("run-").and_then(|rest| rest.split('-').next());
    owner.is_some_and(|pid| Path::new("/proc").join(pid).exists())
}

/// Takes the dead among the adopted, as init would.
fn reap() {
    while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status != WaitStatus::StillAlive) {}
}

/// Processes whose parent is this one.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    processes(|folder| {
        let status = fs::read_to_string(folder.join("stat")).unwrap_or_default();
        // The name in parentheses may hold anything; the parent is the second field behind it.
        status.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)) == Some(own.as_str())
    })
}

fn processes_that_name(path: &Path) -> Vec<String> {
    let path = path.display().to_string();
    processes(|folder| {
        ["cmdline", "environ"].iter().any(|file| {
            fs::read(folder.join(file)).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&path))
        })
    })
}

fn processes(wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let number = entry.file_name().to_string_lossy().parse::<u32>();
        if number.is_ok_and(|number| number != std::process::id()) && wanted(&entry.path()) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(format!("{}: {}", entry.path().display(), String::from_utf8_lossy(&command)));
        }
    }
    found
}

/// No file that is left holds a token of the demo, nor any key.
fn assert_no_token(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_no_token(&path);
            continue;
        }
        let text = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&text);
        for secret in ["fbdemo-token-", "PRIVATE KEY"] {
            assert!(!text.contains(secret), "`{secret}` is left in {}", path.display());
        }
    }
}

fn texts(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn holds_to_its_end(user: User) {
    let place = Place::new();
    let (out, err) = {
        let output = place.start(user).wait_with_output().unwrap();
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{out}{err}");
        (out, err)
    };
    assert!(!out.contains("[FAILED]") && !err.contains("FAILED"), "{out}{err}");
    let held = out.matches("[ok]").count();
    assert!(held >= 20, "only {held} checks: {out}");
    for said in [
        "the run's tier, as measured, is `process`",
        "the run's tier, as measured, is `container`",
        "token found in: nothing",
        "credential=demo-api",
        "denied raw_address",
        "refused insufficient_isolation",
        "verified up to record",
    ] {
        assert!(out.contains(said), "`{said}` is missing: {out}");
    }
    assert!(!out.contains("fbdemo-token-"), "a token is shown: {out}");
    place.assert_clean();
    place.assert_log_verifies();
}

#[test]
fn the_demo_holds_as_whoever_runs_the_tests_and_leaves_nothing() {
    holds_to_its_end(User::Own);
}

#[test]
fn the_demo_holds_as_a_user_without_rights_or_home_and_leaves_nothing() {
    holds_to_its_end(User::Nobody);
}

/// Interrupts the demo at several moments, with `send`.
fn interrupted_leaves_nothing(user: User, send: impl Fn(Pid)) {
    let mut in_the_middle = 0;
    for moment_ms in [10, 60, 120, 250, 500, 800] {
        let place = Place::new();
        let child = place.start(user);
        std::thread::sleep(Duration::from_millis(moment_ms)); // the moment is what is varied
        send(Pid::from_raw(i32::try_from(child.id()).unwrap()));
        let output = child.wait_with_output().unwrap();
        let (out, err) = texts(&output);
        assert!(!out.contains("[FAILED]") && !err.contains("FAILED"), "{moment_ms} ms: {out}{err}");
        match output.status.code() {
            Some(130) => {
                in_the_middle += 1;
                assert!(err.contains("interrupted; everything is stopped"), "{moment_ms} ms: {err}");
                place.assert_clean();
                place.assert_log_verifies();
            }
            // It was over already.
            Some(0) => place.assert_clean(),
            // Before anything was made the signal ends the process as it ends any other.
            None if !place.demo().exists() => {}
            other => panic!("{moment_ms} ms: {other:?} {out}{err}"),
        }
    }
    assert!(in_the_middle > 0, "no demo was caught in the middle");
}

#[test]
fn ctrl_c_at_any_moment_ends_the_demo_in_order() {
    // A terminal sends to the whole group.
    interrupted_leaves_nothing(User::Own, |pid| killpg(pid, Signal::SIGINT).unwrap());
    interrupted_leaves_nothing(User::Nobody, |pid| killpg(pid, Signal::SIGINT).unwrap());
}

#[test]
fn sigterm_and_hangup_end_the_demo_in_order() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        interrupted_leaves_nothing(User::Own, |pid| kill(pid, signal).unwrap());
    }
}

/// Nothing of a demo that is killed lives on: its daemons end in order when its end of their pipes is gone. Only its folder
/// is left as it was.
#[test]
fn a_killed_demo_takes_its_daemons_with_it() {
    let mut with_daemons = 0;
    for user in [User::Own, User::Nobody] {
        for moment_ms in [60, 150, 300, 500, 700] {
            let place = Place::new();
            let child = place.start(user);
            std::thread::sleep(Duration::from_millis(moment_ms)); // the moment is what is varied
            kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
            child.wait_with_output().unwrap();
            with_daemons += usize::from(!children().is_empty());
            place.assert_nothing_lives_on(DRAINED);
            if fs::read_dir(place.demo().join("audit")).is_ok_and(|mut files| files.next().is_some()) {
                place.assert_log_verifies();
            }
        }
    }
    assert!(with_daemons > 0, "no demo was killed while its daemons ran");
}
