//! The system calls that have no safe wrapper in the crates we use: fork, clone3, mount_setattr, close_range; and the
//! one call of the engine that trusts its input. The only unsafe file of sandboxd.
//!
//! INVARIANT: `fork` and `clone3` are called only in a process with one thread, so that the child may run ordinary Rust
//! (allocate, take locks): no other thread can hold a lock across them. `fork` checks it, `clone3` is called by the
//! launcher only, which never starts a thread.
#![expect(unsafe_code, reason = "wrappers of system calls that rustix and nix offer as unsafe or not at all")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::libc;
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `CLONE_PIDFD` and `CLONE_INTO_CGROUP` of linux/sched.h; libc's constants are too narrow for the second.
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Links of the folder of a process's threads when there is one: its name, its own `.`, and `..` of the thread's folder
/// (fs/proc/base.c, `proc_task_getattr`). One call instead of a listing.
const LINKS_OF_ONE_THREAD: u64 = 3;

/// Who returns from `fork` or `clone3`.
#[derive(Debug)]
pub enum Side<T> {
    Child,
    Parent(T),
}

/// Forks a process that has one thread.
///
/// # Errors
/// `EBUSY` when the process has more than one thread: a lock held by another one would stay locked for ever in the child.
pub fn fork_single_threaded() -> io::Result<Side<Pid>> {
    if std::fs::metadata("/proc/self/task")?.nlink() != LINKS_OF_ONE_THREAD {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    fork_whatever_the_threads()
}

/// Forks without asking for threads. For test programs, whose harness has a second thread that waits in a channel.
/// glibc's fork resets the allocator's locks in the child; other locks must not be held by a second thread.
pub fn fork_whatever_the_threads() -> io::Result<Side<Pid>> {
    // SAFETY: fork has no memory-safety condition; the child gets a copy of the address space. What the child may do is
    // the INVARIANT above.
    let result = unsafe { libc::fork() };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Pid::from_raw(pid).map(Side::Parent).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// A child made by `clone3` and the descriptor that names it beyond doubt.
#[derive(Debug)]
pub struct Cloned {
    pub pid: Pid,
    pub pidfd: OwnedFd,
}

/// `clone3` without shared memory: a fork into new namespaces (`flags`: CLONE_NEW*), into a version 2 control group
/// where one is given.
pub fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side<Cloned>> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: all-zero is a valid clone_args: no stack, no thread-local area, no shared anything.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags | CLONE_PIDFD;
    arguments.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = &cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::try_from(cgroup.as_raw_fd()).unwrap_or_default();
    }
    // SAFETY: `arguments` and `pidfd` live across the call, its size is passed; without CLONE_VM and with no stack the
    // child continues on a copy of this stack, as after fork. What the child may do is the INVARIANT above.
    let result = unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_mut(&mut arguments), size_of::<libc::clone_args>())
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: the call succeeded in the parent, so the kernel stored a new descriptor that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            pid.map(|pid| Side::Parent(Cloned { pid, pidfd }))
                .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
        }
    }
}

/// The processor's count of ticks since it started; `None` on a processor without one that we read.
pub fn ticks() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of every x86-64 processor and reads a counter; a kernel that forbids it would kill
    // every program that asks for the time.
    let ticks = Some(unsafe { core::arch::x86_64::_rdtsc() });
    #[cfg(not(target_arch = "x86_64"))]
    let ticks = None;
    ticks
}

/// Takes the ordinary scheduling policy where this thread has another one.
pub fn leave_realtime() -> io::Result<()> {
    // SAFETY: no memory is involved; 0 names the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if matches!(policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE)
    {
        return Ok(());
    }
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters live across the call; 0 names the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Mount attributes to set (`MOUNT_ATTR_*`); on the whole tree when `recursive`.
pub fn mount_setattr(tree: impl AsFd, set: u64, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static C string, the attributes live across the call and their size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(&attributes),
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from `first` on, except `keep`.
///
/// Every `OwnedFd` above `first` that a caller still has becomes a number without a file: only the child of the
/// launcher calls this, after it has moved what it needs to `keep`, and ends by `exit` without dropping the rest.
pub fn close_all_from(first: i32, keep: &[i32]) -> io::Result<()> {
    let mut keep: Vec<i32> = keep.iter().copied().filter(|number| *number >= first).collect();
    keep.sort_unstable();
    let mut start = first;
    for number in keep {
        if number > start {
            close_range(start, number - 1)?;
        }
        start = number.saturating_add(1);
    }
    close_range(start, i32::MAX)
}

fn close_range(first: i32, last: i32) -> io::Result<()> {
    // SAFETY: closing descriptors breaks no memory rule; the owners are dealt with as `close_all_from` says.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends this process at once: a forked child must not run what the parent registered for its own end.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Overwrites the environment strings of this process with zeros, so that a process forked from here does not carry
/// what the daemon was started with. The standard library reads no variable afterwards.
pub fn scrub_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: called in a process with one thread (INVARIANT above), so nobody else reads the table meanwhile.
    let mut entry = unsafe { environ };
    if entry.is_null() {
        return;
    }
    loop {
        // SAFETY: the table ends with a null pointer, at which this loop stops.
        let text = unsafe { *entry };
        if text.is_null() {
            break;
        }
        // SAFETY: each entry is a C string in writable memory of this process (the stack set up by exec, or the heap).
        let length = unsafe { CStr::from_ptr(text) }.to_bytes().len();
        // SAFETY: as above; exactly the bytes of the string are overwritten, its end stays.
        unsafe { std::ptr::write_bytes(text, 0, length) };
        // SAFETY: not beyond the null pointer at the end.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: as above; an empty table is valid.
    unsafe { environ = std::ptr::null_mut() };
}

/// Watches a descriptor for being readable, in the tokio runtime that this is called in.
pub fn watch_readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd always names the same open descriptor until it is dropped, and the AsyncFd owns it.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Loads a module that this very build compiled and embedded, in place: nothing is copied, and the pages are those of the
/// program file, shared by all workers. The engine's configuration must have [`EmbeddedCode`].
///
/// The `'static` bytes are the proof that they are ours: they come from `include_bytes!` of what the build script made
/// with the same engine version. Never pass leaked or mapped bytes from elsewhere.
pub fn deserialize_embedded_module(
    engine: &wasmtime::Engine,
    bytes: &'static [u8],
) -> Result<wasmtime::Module, wasmtime::Error> {
    // SAFETY: the bytes were made by `Engine::precompile_module` in the build script of this crate; wasmtime checks that
    // version and configuration are its own. They are `'static` and nothing writes to them.
    unsafe { wasmtime::Module::deserialize_raw(engine, std::ptr::NonNull::from(bytes)) }
}

/// Makes the machine code of an embedded module executable where it lies. Its pages stay unwritable.
#[derive(Debug)]
pub struct EmbeddedCode;

impl wasmtime::CustomCodeMemory for EmbeddedCode {
    fn required_alignment(&self) -> usize {
        rustix::param::page_size()
    }

    fn publish_executable(&self, start: *const u8, length: usize) -> wasmtime::Result<()> {
        protect(start, length, libc::PROT_READ | libc::PROT_EXEC)
    }

    fn unpublish_executable(&self, start: *const u8, length: usize) -> wasmtime::Result<()> {
        protect(start, length, libc::PROT_READ)
    }
}

fn protect(start: *const u8, length: usize, protection: libc::c_int) -> wasmtime::Result<()> {
    // SAFETY: wasmtime calls this with the text section of the module that `deserialize_embedded_module` loads: whole,
    // aligned pages of a constant of this program. They are readable before and after, and never writable.
    let result = unsafe { libc::mprotect(start.cast_mut().cast(), length, protection) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}
