//! What a worker gives up before it takes any code, in this order: descriptors, limits, user, namespaces, capabilities,
//! files, and last every system call that it does not need.
//!
//! Steps that a kernel or container forbids are skipped and told to sandboxd, which measures the result from outside; the
//! system call filter, no_new_privs and empty capabilities are never skipped.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetError, RulesetStatus, Scope,
};
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;

use super::super::limits::{WORKER_DESCRIPTORS, WORKER_SPARE_ADDRESSES};
use super::syscalls::{ALLOWED, When};
use crate::isolate::seccomp::filter::{self, Answer};

/// The step that failed, and why.
pub(super) type StepError = (&'static str, io::Error);

/// The user and group that have no files: `nobody`.
const NOBODY: u32 = 65534;

/// How often the kernel is asked for the user namespace of a worker's own: it is refused while the thread that loaded
/// the engine, which has ended, is still being put away.
const USER_NAMESPACE_TRIES: usize = 1000;

/// Moves the control socket away from standard input, and keeps nothing else.
pub(super) fn take_control_socket() -> io::Result<OwnedFd> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    keep_only(&[&control])?;
    Ok(control)
}

/// Puts /dev/null on 0, 1 and 2 and closes everything else but `kept`: what this process was started with by mistake,
/// however it came (F02).
pub(super) fn keep_only(kept: &[&OwnedFd]) -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    let kept: Vec<i32> = kept.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    crate::child::sys::close_all_from(3, &kept)
}

/// What is left of the world after the namespaces were left, and the walls that come next.
pub(super) struct Left {
    /// In namespaces of its own, with an empty root.
    own: bool,
    /// How much memory this process has mapped, opened while there was a /proc.
    mapped: std::fs::File,
    walls: Walls,
}

/// Walls that hold nothing yet. Made while the engine loads, since nobody has to wait for them then.
struct Walls {
    files: RulesetCreated,
    calls: Filter,
}

impl Walls {
    fn make() -> Result<Self, StepError> {
        Ok(Self { files: no_files().map_err(landlock_failed)?, calls: Filter(program()) })
    }
}

/// The system calls that are left.
pub(super) struct Filter(BpfProgram);

impl Filter {
    /// The last step: from here on only what `syscalls.rs` lists. For all threads.
    pub(super) fn apply(&self) -> io::Result<()> {
        seccompiler::apply_filter_all_threads(&self.0).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Enters namespaces that hold nothing, and does `work`.
///
/// The kernel takes about as long for the one as we do for the other, so root does both at once: the work is on a thread
/// that ends before anything is taken away from this one, since users, capabilities and filters are each thread's own.
/// An ordinary user needs a process with one thread to enter a user namespace, and does them one after the other.
///
/// `begun` is closed when there is a processor to spare: one is enough for the rest.
pub(super) fn leave_namespaces_while<T: Send>(
    begun: Option<OwnedFd>,
    work: impl FnOnce() -> Result<T, StepError> + Send,
) -> Result<(T, Left), StepError> {
    let mapped = std::fs::File::open("/proc/self/statm").map_err(|error| ("rlimits", error))?;
    if !Uid::effective().is_root() {
        drop(begun);
        let done = work()?;
        let own = leave_namespaces(CloneFlags::CLONE_NEWUSER);
        return Ok((done, Left { own, mapped, walls: Walls::make()? }));
    }
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .name("load".into())
            .spawn_scoped(scope, work)
            .map_err(|error| ("engine", error))?;
        let own = leave_namespaces(CloneFlags::empty());
        let walls = Walls::make();
        drop(begun);
        let done = worker.join().map_err(|_| ("engine", io::Error::other("the loading thread panicked")))?;
        Ok((done?, Left { own, mapped, walls: walls? }))
    })
}

/// What stands but for the filter.
pub(super) struct Entered {
    own: bool,
    files: &'static str,
}

impl Entered {
    /// `name=value` lines for what cannot be seen from outside.
    pub(super) fn report(&self) -> String {
        let mut report = String::new();
        let mut say = |name: &str, value: &str| {
            let _ = writeln!(report, "{name}={value}");
        };
        say("namespaces", if self.own { "own" } else { "shared" });
        say("landlock", self.files);
        say("files", if std::fs::File::open("/").is_err() { "denied" } else { "reachable" });
        say("network", if reaches_network() { "reachable" } else { "denied" });
        say("engine_sha256", env!("FREEBOARD_ENGINE_SHA256"));
        report
    }
}

/// Everything but the filter, which is returned. The process has one thread.
pub(super) fn enter(left: Left) -> Result<(Entered, Filter), StepError> {
    limit_resources(left.mapped).map_err(|error| ("rlimits", error))?;
    if Uid::effective().is_root() {
        become_nobody().map_err(|error| ("nobody", io::Error::from(error)))?;
        own_users();
    }
    prctl_no_new_privileges()?;
    drop_capabilities().map_err(|error| ("capabilities", error))?;
    let files = restrict_files(left.walls.files)?;
    Ok((Entered { own: left.own, files }, left.walls.calls))
}

fn limit_resources(mapped: std::fs::File) -> io::Result<()> {
    let used = io::read_to_string(mapped)?;
    let pages: u64 = used.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let addresses = pages * rustix::param::page_size() as u64 + WORKER_SPARE_ADDRESSES;
    for (resource, limit) in [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_MEMLOCK, 0),
        (Resource::RLIMIT_MSGQUEUE, 0),
        (Resource::RLIMIT_NOFILE, WORKER_DESCRIPTORS),
        (Resource::RLIMIT_AS, addresses),
    ] {
        setrlimit(resource, limit, limit)?;
    }
    Ok(())
}

/// Enters namespaces that hold nothing. False when the kernel permits none.
fn leave_namespaces(users: CloneFlags) -> bool {
    let spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    // Landlock and the filter deny files as well: an empty root is the second wall, and may fail.
    nix::sched::unshare(users | spaces).is_ok() && empty_root().is_ok()
}

/// A user namespace for the worker of a root daemon, where the kernel gives one. Capabilities of it reach nothing
/// outside, and are dropped next all the same.
fn own_users() {
    for _ in 0..USER_NAMESPACE_TRIES {
        match nix::sched::unshare(CloneFlags::CLONE_NEWUSER) {
            Err(nix::errno::Errno::EINVAL) => std::thread::yield_now(),
            _ => break,
        }
    }
}

fn empty_root() -> nix::Result<()> {
    let none = None::<&str>;
    nix::mount::mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    nix::mount::mount(Some("empty"), "/proc", Some("tmpfs"), flags, Some("size=4k,nr_inodes=2,mode=0000"))?;
    nix::unistd::chdir("/proc")?;
    nix::unistd::pivot_root(".", ".")?;
    nix::mount::umount2(".", MntFlags::MNT_DETACH)?;
    nix::mount::mount(none, "/", none, flags | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none)
}

fn become_nobody() -> nix::Result<()> {
    nix::unistd::setgroups(&[])?;
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)
}

fn prctl_no_new_privileges() -> Result<(), StepError> {
    nix::sys::prctl::set_no_new_privs().map_err(|error| ("no_new_privs", error.into()))
}

/// No core file and no look into this process, from the first run on. Not before: sandboxd without root could not read
/// the namespaces and descriptors that it measures.
pub(super) fn become_opaque() -> io::Result<()> {
    Ok(nix::sys::prctl::set_dumpable(false)?)
}

fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(())
}

/// No file, no TCP port, no abstract socket, no signal to others, as far as the kernel knows how to deny them.
fn no_files() -> Result<RulesetCreated, RulesetError> {
    let abi = ABI::V6;
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()
}

fn landlock_failed(error: RulesetError) -> StepError {
    ("landlock", io::Error::other(error.to_string()))
}

fn restrict_files(rules: RulesetCreated) -> Result<&'static str, StepError> {
    let restricted = rules.restrict_self().map_err(landlock_failed)?;
    Ok(match restricted.ruleset {
        RulesetStatus::FullyEnforced => "full",
        RulesetStatus::PartiallyEnforced => "partial",
        RulesetStatus::NotEnforced => "absent",
    })
}

/// Tries what must fail: a datagram socket that only picks a route (no packet is sent by `connect`).
fn reaches_network() -> bool {
    std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect("198.51.100.1:9")).is_ok()
}

fn program() -> BpfProgram {
    let calls = ALLOWED.iter().map(|(call, when, _)| {
        let answer = match *when {
            When::Always => Answer::Allow,
            When::Is { index, value } => Answer::Only { argument: index, mask: u32::MAX, value },
            When::Without { index, mask } => Answer::Only { argument: index, mask, value: 0 },
        };
        (filter::number(*call), answer)
    });
    filter::program(calls.collect(), Answer::Kill)
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;
    use crate::isolate::seccomp::filter::tests::judge;

    #[test]
    fn gives_each_system_call_a_reason_and_one_answer() {
        let program = program();
        for (number, when, reason) in ALLOWED {
            assert!(!reason.is_empty());
            assert_eq!(ALLOWED.iter().filter(|(other, _, _)| other == number).count(), 1, "{number}");
            let number = filter::number(*number);
            let judged = |index: u32, value: u32| {
                let mut arguments = [0; 6];
                arguments[index as usize] = u64::from(value);
                judge(&program, filter::ARCHITECTURE, number, &arguments)
            };
            let (allowed, refused) = match *when {
                When::Always => (judged(0, 0), libc::SECCOMP_RET_KILL_PROCESS),
                When::Is { index, value } => (judged(index, value), judged(index, value + 1)),
                When::Without { index, mask } => (judged(index, !mask), judged(index, mask)),
            };
            assert_eq!(allowed, libc::SECCOMP_RET_ALLOW, "{number}");
            assert_eq!(refused, libc::SECCOMP_RET_KILL_PROCESS, "{number}");
        }
        for number in 0..1000 {
            if ALLOWED.iter().all(|(other, _, _)| filter::number(*other) != number) {
                let judged = judge(&program, filter::ARCHITECTURE, number, &[]);
                assert_eq!(judged, libc::SECCOMP_RET_KILL_PROCESS, "{number}");
            }
        }
    }
}
