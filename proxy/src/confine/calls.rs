//! The system calls of a running broker, as data: each with what it is needed for. A call that is not here does not exist for
//! the broker (ENOSYS). Before adding one, ask what an attacker gains by it.
//!
//! Not here, among others: execve (no program is started), clone3 and clone without threads (no process, no namespace), ptrace,
//! memory that is made executable, mount, bpf, keyctl, io_uring, userfaultfd, and everything that changes users.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Is,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    #[error("the list of calls cannot be compiled")]
    Compile(#[from] BackendError),
    #[error("the kernel does not take the list of calls")]
    Apply(#[from] seccompiler::Error),
}

/// Number and what it is needed for. All arguments are allowed.
type Call = (libc::c_long, &'static str);

macro_rules! calls {
    ($($(#[$attribute:meta])* $number:ident $why:literal,)*) => {
        &[$($(#[$attribute])* (libc::$number, $why)),*]
    };
}

/// Whatever the arguments.
const ALLOWED: &[Call] = calls! {
    SYS_read "sockets, files, wake-ups",
    SYS_write "the same",
    SYS_readv "the same, several buffers at once",
    SYS_writev "the same",
    SYS_pread64 "libraries that libc loads",
    SYS_openat "files within the Landlock rules",
    SYS_close "every descriptor",
    SYS_lseek "the end of the audit log",
    SYS_fstat "what was opened",
    SYS_newfstatat "whether a file has changed",
    SYS_statx "the same",
    SYS_faccessat "whether a file is there",
    SYS_faccessat2 "the same",
    SYS_getdents64 "policy and audit folders",
    SYS_readlinkat "policy folders that are links",
    SYS_getcwd "libc, for relative paths",
    SYS_mkdirat "the audit folder",
    SYS_linkat "a full log file gets its name",
    SYS_unlinkat "and loses the other one; old ones go; the control socket at the end",
    SYS_ftruncate "a log file",
    SYS_fsync "folders of the log",
    SYS_fdatasync "the log",
    SYS_flock "one broker writes a log",
    SYS_fcntl "descriptors that do not block",
    SYS_dup "standard output",
    SYS_dup3 "the same",
    SYS_pipe2 "signals",
    SYS_eventfd2 "wake-ups between threads",
    SYS_epoll_create1 "worker threads",
    SYS_epoll_ctl "the same",
    SYS_epoll_pwait "the same",
    SYS_epoll_pwait2 "the same",
    SYS_ppoll "waiting for one descriptor",
    SYS_socketpair "helpers, readiness",
    SYS_bind "questions to name servers, readiness",
    SYS_listen "the upstream of readiness",
    SYS_accept4 "guests",
    SYS_accept "the same",
    SYS_connect "upstreams, name servers, helpers",
    SYS_getsockname "where a guest wanted to go",
    SYS_getpeername "who is there",
    SYS_getsockopt "errors of a connection, users of the control socket",
    SYS_setsockopt "no delay",
    SYS_sendto "sockets",
    SYS_recvfrom "sockets",
    SYS_sendmsg "sockets, descriptors to helpers",
    SYS_recvmsg "sockets, descriptors from sandboxd",
    SYS_sendmmsg "questions to name servers",
    SYS_recvmmsg "the same",
    SYS_shutdown "the end of a connection",
    SYS_munmap "memory",
    SYS_mremap "memory",
    SYS_brk "memory",
    SYS_madvise "memory that is given back",
    SYS_mlock "secrets",
    SYS_munlock "secrets",
    SYS_futex "locks",
    SYS_set_robust_list "threads",
    SYS_rseq "threads",
    SYS_sched_yield "the audit writer's turn",
    SYS_sched_getaffinity "how many processors there are",
    SYS_getcpu "memory per processor",
    SYS_exit "the end of a thread",
    SYS_exit_group "the end",
    SYS_getpid "records",
    SYS_gettid "threads",
    SYS_getuid "libc",
    SYS_geteuid "records",
    SYS_getgid "libc",
    SYS_getegid "libc",
    SYS_rt_sigaction "signals",
    SYS_rt_sigprocmask "signals",
    SYS_rt_sigreturn "signals",
    SYS_sigaltstack "stack overflows are seen",
    SYS_restart_syscall "sleep after a signal",
    SYS_nanosleep "pauses",
    SYS_clock_nanosleep "pauses",
    SYS_clock_gettime "time where the vDSO has none",
    SYS_clock_getres "the same",
    SYS_gettimeofday "the same",
    SYS_getrandom "keys, nonces, ids",
    SYS_uname "libc's resolver",
    SYS_sysinfo "libc",
    SYS_membarrier "cryptography and memory",
    SYS_getrusage "libc",
    #[cfg(target_arch = "x86_64")]
    SYS_open "the same as the calls with `at`, by older code of libc",
    #[cfg(target_arch = "x86_64")]
    SYS_stat "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_lstat "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_access "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_readlink "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_mkdir "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_link "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_unlink "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_poll "the same",
    #[cfg(target_arch = "x86_64")]
    SYS_epoll_wait "the same",
};

const fn word(value: libc::c_int) -> u64 {
    value.unsigned_abs() as u64
}

/// One condition: argument, comparison, value.
type Condition = (u8, Is, u64);

/// linux/prctl.h
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Calls with conditions: one of the lists must hold as a whole.
const CONDITIONAL: &[(libc::c_long, &[&[Condition]], &str)] = &[
    (
        libc::SYS_socket,
        &[
            &[(0, Is::Eq, word(libc::AF_UNIX))],
            &[(0, Is::Eq, word(libc::AF_INET))],
            &[(0, Is::Eq, word(libc::AF_INET6))],
            &[(0, Is::Eq, word(libc::AF_NETLINK)), (2, Is::Eq, word(libc::NETLINK_ROUTE))],
        ],
        "upstreams and name servers; libc asks for its own addresses (netlink). No packet and no other family",
    ),
    (
        libc::SYS_clone,
        &[&[(0, Is::MaskedEq(word(libc::CLONE_THREAD)), word(libc::CLONE_THREAD))]],
        "threads; no process. clone3, whose flags cannot be seen here, does not exist: libc falls back to this",
    ),
    (
        libc::SYS_mmap,
        &[
            &[(2, Is::MaskedEq(word(libc::PROT_EXEC)), 0)],
            &[(3, Is::MaskedEq(word(libc::MAP_ANONYMOUS)), 0), (2, Is::MaskedEq(word(libc::PROT_WRITE)), 0)],
        ],
        "memory; libraries of the name service. None that is executable but from a file",
    ),
    (
        libc::SYS_mprotect,
        &[&[(2, Is::MaskedEq(word(libc::PROT_EXEC)), 0)]],
        "guard pages, memory that is only read from now on. None becomes executable",
    ),
    (
        libc::SYS_prctl,
        &[
            &[(0, Is::Eq, word(libc::PR_SET_NAME))],
            &[(0, Is::Eq, word(libc::PR_GET_NAME))],
            &[(0, Is::Eq, word(libc::PR_SET_VMA))],
            &[(0, Is::Eq, PR_GET_AUXV)],
        ],
        "names of threads and memory; the size of a page",
    ),
    (libc::SYS_prlimit64, &[&[(2, Is::Eq, 0)]], "limits are read, none is changed"),
    (
        libc::SYS_ioctl,
        &[
            &[(1, Is::Eq, libc::FIONBIO)],
            &[(1, Is::Eq, libc::FIONREAD)],
            &[(1, Is::Eq, libc::FIOCLEX)],
            &[(1, Is::Eq, libc::TCGETS)],
        ],
        "descriptors that do not block; whether standard error is a terminal",
    ),
];

/// Restricts this thread and all that it starts. Needs no_new_privs.
pub fn restrict() -> Result<(), CallsError> {
    Ok(apply_filter(&compile()?)?)
}

fn compile() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    rules.extend(ALLOWED.iter().map(|(number, _)| (*number, Vec::new())));
    for (number, alternatives, _) in CONDITIONAL {
        let rules_of_call: Result<Vec<SeccompRule>, BackendError> =
            alternatives.iter().map(|all| rule(all)).collect();
        rules.insert(*number, rules_of_call?);
    }
    // A crash says where it came from: only to this process itself.
    let own = u64::from(std::process::id());
    for number in [libc::SYS_tgkill, libc::SYS_kill] {
        rules.insert(number, vec![rule(&[(0, Is::Eq, own)])?]);
    }
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, absent, SeccompAction::Allow, architecture())?.try_into()
}

/// The kernel takes each of these arguments as 32 bits, but for the pointer of prlimit64, which must be null as a whole.
fn rule(all: &[Condition]) -> Result<SeccompRule, BackendError> {
    let conditions = all.iter().map(|(argument, comparison, value)| {
        let length = if *argument == 2 && *value == 0 && *comparison == Is::Eq {
            Length::Qword
        } else {
            Length::Dword
        };
        SeccompCondition::new(*argument, length, comparison.clone(), *value)
    });
    SeccompRule::new(conditions.collect::<Result<Vec<_>, _>>()?)
}

const fn architecture() -> TargetArch {
    if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 }
}
