//! What a worker gives up before it takes any code, in this order: descriptors, limits, user, namespaces, capabilities,
//! files, and last every system call that it does not need.
//!
//! Steps that a kernel or container forbids are skipped and told to sandboxd, which measures the result from outside; the
//! system call filter, no_new_privs and empty capabilities are never skipped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use nix::mount::{MntFlags, MsFlags};
use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::super::limits::{WORKER_DESCRIPTORS, WORKER_SPARE_ADDRESSES};
use super::syscalls::{ALLOWED, When};

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
    keep_only(&control)?;
    Ok(control)
}

/// Puts /dev/null on 0, 1 and 2 and closes everything else but the control socket: what this process was started with by
/// mistake, however it came (F02).
pub(super) fn keep_only(control: &OwnedFd) -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    crate::child::sys::close_all_from(3, &[control.as_raw_fd()])
}

/// What is left of the world after the namespaces were left.
#[derive(Debug)]
pub(super) struct Left {
    /// In namespaces of its own, with an empty root.
    own: bool,
    /// How much memory this process has mapped, opened while there was a /proc.
    mapped: std::fs::File,
}

/// Enters namespaces that hold nothing, and does `work`.
///
/// The kernel takes about as long for the one as we do for the other, so root does both at once: the work is on a thread
/// that ends before anything is taken away from this one, since users, capabilities and filters are each thread's own.
/// An ordinary user needs a process with one thread to enter a user namespace, and does them one after the other.
pub(super) fn leave_namespaces_while<T: Send>(
    work: impl FnOnce() -> Result<T, StepError> + Send,
) -> Result<(T, Left), StepError> {
    let mapped = std::fs::File::open("/proc/self/statm").map_err(|error| ("rlimits", error))?;
    if !Uid::effective().is_root() {
        let done = work()?;
        return Ok((done, Left { own: leave_namespaces(CloneFlags::CLONE_NEWUSER), mapped }));
    }
    let (done, own) = std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .name("load".into())
            .spawn_scoped(scope, work)
            .map_err(|error| ("engine", error))?;
        let own = leave_namespaces(CloneFlags::empty());
        let done = worker.join().map_err(|_| ("engine", io::Error::other("the loading thread panicked")))?;
        Ok((done?, own))
    })?;
    Ok((done, Left { own, mapped }))
}

/// Everything but the filter. The process has one thread. Returns `name=value` lines for what cannot be seen from outside.
pub(super) fn enter(left: Left) -> Result<String, StepError> {
    let mut report = String::new();
    let mut say = |name: &str, value: &str| {
        let _ = writeln!(report, "{name}={value}");
    };
    limit_resources(left.mapped).map_err(|error| ("rlimits", error))?;
    if Uid::effective().is_root() {
        become_nobody().map_err(|error| ("nobody", io::Error::from(error)))?;
        own_users();
    }
    say("namespaces", if left.own { "own" } else { "shared" });
    prctl_no_new_privileges()?;
    drop_capabilities().map_err(|error| ("capabilities", error))?;
    say("landlock", restrict_files()?);
    say("files", if std::fs::File::open("/").is_err() { "denied" } else { "reachable" });
    say("network", if reaches_network() { "reachable" } else { "denied" });
    say("engine_sha256", env!("FREEBOARD_ENGINE_SHA256"));
    Ok(report)
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
fn restrict_files() -> Result<&'static str, StepError> {
    let abi = ABI::V6;
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(abi)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|error| ("landlock", io::Error::other(error.to_string())))?;
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

/// The last step: from here on only what `syscalls.rs` lists. For all threads.
pub(super) fn filter_system_calls() -> io::Result<()> {
    let program = program().map_err(|error| io::Error::other(error.to_string()))?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| io::Error::other(error.to_string()))
}

fn program() -> Result<BpfProgram, seccompiler::Error> {
    let mut rules = BTreeMap::new();
    for (number, when, _) in ALLOWED {
        let condition = match *when {
            When::Always => None,
            When::Is { index, value } => Some((index, SeccompCmpOp::Eq, u64::from(value))),
            When::Without { index, mask } => Some((index, SeccompCmpOp::MaskedEq(u64::from(mask)), 0)),
        };
        let conditions: &mut Vec<SeccompRule> = rules.entry(*number).or_default();
        if let Some((index, operator, value)) = condition {
            let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?;
            conditions.push(SeccompRule::new(vec![condition])?);
        }
    }
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_each_system_call_a_reason_and_never_both_with_and_without_a_condition() {
        for (number, when, reason) in ALLOWED {
            assert!(!reason.is_empty());
            let same = ALLOWED.iter().filter(|(other, _, _)| other == number).count();
            assert!(same == 1 || !matches!(when, When::Always), "{number} is allowed whatever its arguments");
        }
        assert!(program().is_ok());
    }
}
