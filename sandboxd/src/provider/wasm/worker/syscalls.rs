//! The system calls that a worker may make after it has locked itself down, as data with a reason each.
//!
//! Everything else kills the worker: nothing in it asks for anything else, so whoever does is not ours. There is no open,
//! no socket but a Unix pair, no exec, no new process, no executable memory.

use nix::libc;

/// What must hold of an argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Always,
    /// Argument `index` is `value` (32 bits).
    Is {
        index: u32,
        value: u32,
    },
    /// Argument `index` has none of the bits of `mask`.
    Without {
        index: u32,
        mask: u32,
    },
}

/// `PAGEMAP_SCAN` of linux/fs.h: `_IOWR('f', 16, struct pm_scan_arg)`, 96 bytes.
const PAGEMAP_SCAN: u32 = 0xc060_6610;

pub(super) const ALLOWED: &[(libc::c_long, When, &str)] = &[
    (libc::SYS_read, When::Always, "answers of the gate"),
    (libc::SYS_write, When::Always, "messages to sandboxd"),
    (libc::SYS_close, When::Always, "streams whose request is over"),
    (libc::SYS_recvmsg, When::Always, "the next run"),
    (libc::SYS_recvfrom, When::Always, "answers of the gate"),
    (libc::SYS_sendto, When::Always, "requests to the gate"),
    (libc::SYS_sendmsg, When::Always, "handing a stream to the gate"),
    (libc::SYS_socketpair, When::Is { index: 0, value: libc::AF_UNIX as u32 }, "a stream for a request"),
    (
        libc::SYS_fcntl,
        When::Is { index: 1, value: libc::F_GETFD as u32 },
        "checks of the standard library before it closes",
    ),
    (libc::SYS_poll, When::Always, "waiting for answers, timers and sandboxd's end"),
    (libc::SYS_ppoll, When::Always, "as poll"),
    (libc::SYS_clock_gettime, When::Always, "time where the vDSO has none"),
    (libc::SYS_clock_nanosleep, When::Always, "the ticking thread"),
    (libc::SYS_nanosleep, When::Always, "as clock_nanosleep"),
    (libc::SYS_futex, When::Always, "waking the ticking thread"),
    (libc::SYS_getrandom, When::Always, "seeds and crypto.getRandomValues"),
    (libc::SYS_mmap, When::Without { index: 2, mask: libc::PROT_EXEC as u32 }, "memory of the allocator"),
    (libc::SYS_mremap, When::Always, "as mmap; keeps the protection"),
    (libc::SYS_munmap, When::Always, "as mmap"),
    (libc::SYS_brk, When::Always, "as mmap"),
    (libc::SYS_madvise, When::Always, "giving a run's memory back"),
    (libc::SYS_mprotect, When::Without { index: 2, mask: libc::PROT_EXEC as u32 }, "growing a run's memory"),
    (libc::SYS_ioctl, When::Is { index: 1, value: PAGEMAP_SCAN }, "finding the pages that a run has written"),
    (
        libc::SYS_rt_sigreturn,
        When::Always,
        "returning from the handler that turns faults of guest code into traps",
    ),
    (libc::SYS_rt_sigprocmask, When::Always, "as rt_sigreturn"),
    (libc::SYS_sigaltstack, When::Always, "as rt_sigreturn"),
    (libc::SYS_sched_yield, When::Always, "spinning locks"),
    (libc::SYS_gettid, When::Always, "names of threads in locks"),
    (libc::SYS_restart_syscall, When::Always, "sleeping on after a stop"),
    (
        libc::SYS_prctl,
        When::Is { index: 0, value: libc::PR_SET_DUMPABLE as u32 },
        "becoming opaque before the first run",
    ),
    (libc::SYS_exit, When::Always, "the end of a thread"),
    (libc::SYS_exit_group, When::Always, "the end"),
];
