//! The system calls of a run, as data: what is allowed, what is allowed with conditions, what is refused by name. A call
//! that is on none of the lists does not exist for the run (ENOSYS), so that programs fall back as on an older kernel.
//!
//! One reason per entry. Before adding one, ask what an attacker gains by it; `f05_*` tests guard the refused ones.

use nix::libc;

/// Allowed whatever the arguments: name, number, what programs need it for.
pub(super) type Allowed = (&'static str, libc::c_long, &'static str);

/// One condition on an argument: the masked value must be (or must not be) one of a list, else the errno is the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    pub argument: u32,
    pub mask: u32,
    pub values: &'static [u32],
    pub rule: Membership,
    pub errno: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    OneOf,
    NoneOf,
}

/// Allowed when every check passes.
pub(super) struct Conditional {
    #[expect(dead_code, reason = "names the entry for readers")]
    pub name: &'static str,
    pub number: libc::c_long,
    pub checks: &'static [Check],
}

/// Refused by name: number, errno, why.
pub(super) type Refused = (&'static str, libc::c_long, i32, &'static str);

macro_rules! allowed {
    ($($(#[$attribute:meta])* $name:ident $why:literal,)*) => {
        &[$($(#[$attribute])* (stringify!($name), number::$name, $why)),*]
    };
}

macro_rules! numbers {
    ($($(#[$attribute:meta])* $name:ident = $constant:ident;)*) => {
        /// The numbers under the plain names of the calls.
        #[allow(non_upper_case_globals, reason = "named as the calls are")]
        mod number {
            $($(#[$attribute])* pub(super) const $name: nix::libc::c_long = nix::libc::$constant;)*
        }
    };
}

numbers! {
    read = SYS_read;
    write = SYS_write;
    pread64 = SYS_pread64;
    pwrite64 = SYS_pwrite64;
    readv = SYS_readv;
    writev = SYS_writev;
    preadv = SYS_preadv;
    pwritev = SYS_pwritev;
    preadv2 = SYS_preadv2;
    pwritev2 = SYS_pwritev2;
    #[cfg(target_arch = "x86_64")]
    open = SYS_open;
    openat = SYS_openat;
    openat2 = SYS_openat2;
    #[cfg(target_arch = "x86_64")]
    creat = SYS_creat;
    close = SYS_close;
    close_range = SYS_close_range;
    lseek = SYS_lseek;
    #[cfg(target_arch = "x86_64")]
    stat = SYS_stat;
    #[cfg(target_arch = "x86_64")]
    lstat = SYS_lstat;
    fstat = SYS_fstat;
    newfstatat = SYS_newfstatat;
    statx = SYS_statx;
    statfs = SYS_statfs;
    fstatfs = SYS_fstatfs;
    #[cfg(target_arch = "x86_64")]
    access = SYS_access;
    faccessat = SYS_faccessat;
    faccessat2 = SYS_faccessat2;
    getdents64 = SYS_getdents64;
    #[cfg(target_arch = "x86_64")]
    getdents = SYS_getdents;
    getcwd = SYS_getcwd;
    chdir = SYS_chdir;
    fchdir = SYS_fchdir;
    #[cfg(target_arch = "x86_64")]
    mkdir = SYS_mkdir;
    mkdirat = SYS_mkdirat;
    #[cfg(target_arch = "x86_64")]
    rmdir = SYS_rmdir;
    #[cfg(target_arch = "x86_64")]
    unlink = SYS_unlink;
    unlinkat = SYS_unlinkat;
    #[cfg(target_arch = "x86_64")]
    rename = SYS_rename;
    renameat = SYS_renameat;
    renameat2 = SYS_renameat2;
    #[cfg(target_arch = "x86_64")]
    link = SYS_link;
    linkat = SYS_linkat;
    #[cfg(target_arch = "x86_64")]
    symlink = SYS_symlink;
    symlinkat = SYS_symlinkat;
    #[cfg(target_arch = "x86_64")]
    readlink = SYS_readlink;
    readlinkat = SYS_readlinkat;
    #[cfg(target_arch = "x86_64")]
    chmod = SYS_chmod;
    fchmod = SYS_fchmod;
    fchmodat = SYS_fchmodat;
    fchmodat2 = SYS_fchmodat2;
    #[cfg(target_arch = "x86_64")]
    chown = SYS_chown;
    fchown = SYS_fchown;
    #[cfg(target_arch = "x86_64")]
    lchown = SYS_lchown;
    fchownat = SYS_fchownat;
    umask = SYS_umask;
    #[cfg(target_arch = "x86_64")]
    utime = SYS_utime;
    #[cfg(target_arch = "x86_64")]
    utimes = SYS_utimes;
    #[cfg(target_arch = "x86_64")]
    futimesat = SYS_futimesat;
    utimensat = SYS_utimensat;
    truncate = SYS_truncate;
    ftruncate = SYS_ftruncate;
    fallocate = SYS_fallocate;
    fadvise64 = SYS_fadvise64;
    readahead = SYS_readahead;
    fsync = SYS_fsync;
    fdatasync = SYS_fdatasync;
    sync_file_range = SYS_sync_file_range;
    msync = SYS_msync;
    flock = SYS_flock;
    fcntl = SYS_fcntl;
    dup = SYS_dup;
    #[cfg(target_arch = "x86_64")]
    dup2 = SYS_dup2;
    dup3 = SYS_dup3;
    #[cfg(target_arch = "x86_64")]
    pipe = SYS_pipe;
    pipe2 = SYS_pipe2;
    splice = SYS_splice;
    tee = SYS_tee;
    sendfile = SYS_sendfile;
    copy_file_range = SYS_copy_file_range;
    getxattr = SYS_getxattr;
    lgetxattr = SYS_lgetxattr;
    fgetxattr = SYS_fgetxattr;
    listxattr = SYS_listxattr;
    llistxattr = SYS_llistxattr;
    flistxattr = SYS_flistxattr;
    setxattr = SYS_setxattr;
    lsetxattr = SYS_lsetxattr;
    fsetxattr = SYS_fsetxattr;
    removexattr = SYS_removexattr;
    lremovexattr = SYS_lremovexattr;
    fremovexattr = SYS_fremovexattr;
    inotify_init1 = SYS_inotify_init1;
    #[cfg(target_arch = "x86_64")]
    inotify_init = SYS_inotify_init;
    inotify_add_watch = SYS_inotify_add_watch;
    inotify_rm_watch = SYS_inotify_rm_watch;
    memfd_create = SYS_memfd_create;
    mmap = SYS_mmap;
    munmap = SYS_munmap;
    mprotect = SYS_mprotect;
    pkey_mprotect = SYS_pkey_mprotect;
    pkey_alloc = SYS_pkey_alloc;
    pkey_free = SYS_pkey_free;
    mremap = SYS_mremap;
    madvise = SYS_madvise;
    brk = SYS_brk;
    mincore = SYS_mincore;
    mlock = SYS_mlock;
    mlock2 = SYS_mlock2;
    munlock = SYS_munlock;
    mlockall = SYS_mlockall;
    munlockall = SYS_munlockall;
    get_mempolicy = SYS_get_mempolicy;
    membarrier = SYS_membarrier;
    #[cfg(target_arch = "x86_64")]
    fork = SYS_fork;
    #[cfg(target_arch = "x86_64")]
    vfork = SYS_vfork;
    execve = SYS_execve;
    execveat = SYS_execveat;
    exit = SYS_exit;
    exit_group = SYS_exit_group;
    wait4 = SYS_wait4;
    waitid = SYS_waitid;
    kill = SYS_kill;
    tkill = SYS_tkill;
    tgkill = SYS_tgkill;
    pidfd_open = SYS_pidfd_open;
    pidfd_send_signal = SYS_pidfd_send_signal;
    getpid = SYS_getpid;
    getppid = SYS_getppid;
    gettid = SYS_gettid;
    getpgid = SYS_getpgid;
    #[cfg(target_arch = "x86_64")]
    getpgrp = SYS_getpgrp;
    setpgid = SYS_setpgid;
    getsid = SYS_getsid;
    setsid = SYS_setsid;
    set_tid_address = SYS_set_tid_address;
    set_robust_list = SYS_set_robust_list;
    get_robust_list = SYS_get_robust_list;
    rseq = SYS_rseq;
    futex = SYS_futex;
    futex_waitv = SYS_futex_waitv;
    sched_yield = SYS_sched_yield;
    sched_getaffinity = SYS_sched_getaffinity;
    sched_setaffinity = SYS_sched_setaffinity;
    sched_getparam = SYS_sched_getparam;
    sched_getscheduler = SYS_sched_getscheduler;
    sched_setscheduler = SYS_sched_setscheduler;
    sched_setparam = SYS_sched_setparam;
    sched_getattr = SYS_sched_getattr;
    sched_setattr = SYS_sched_setattr;
    sched_get_priority_max = SYS_sched_get_priority_max;
    sched_get_priority_min = SYS_sched_get_priority_min;
    sched_rr_get_interval = SYS_sched_rr_get_interval;
    getpriority = SYS_getpriority;
    setpriority = SYS_setpriority;
    ioprio_get = SYS_ioprio_get;
    ioprio_set = SYS_ioprio_set;
    prctl = SYS_prctl;
    #[cfg(target_arch = "x86_64")]
    arch_prctl = SYS_arch_prctl;
    getrlimit = SYS_getrlimit;
    setrlimit = SYS_setrlimit;
    prlimit64 = SYS_prlimit64;
    getrusage = SYS_getrusage;
    times = SYS_times;
    getcpu = SYS_getcpu;
    restart_syscall = SYS_restart_syscall;
    seccomp = SYS_seccomp;
    landlock_create_ruleset = SYS_landlock_create_ruleset;
    landlock_add_rule = SYS_landlock_add_rule;
    landlock_restrict_self = SYS_landlock_restrict_self;
    getuid = SYS_getuid;
    geteuid = SYS_geteuid;
    getgid = SYS_getgid;
    getegid = SYS_getegid;
    getresuid = SYS_getresuid;
    getresgid = SYS_getresgid;
    getgroups = SYS_getgroups;
    setuid = SYS_setuid;
    setgid = SYS_setgid;
    setreuid = SYS_setreuid;
    setregid = SYS_setregid;
    setresuid = SYS_setresuid;
    setresgid = SYS_setresgid;
    setfsuid = SYS_setfsuid;
    setfsgid = SYS_setfsgid;
    capget = SYS_capget;
    capset = SYS_capset;
    rt_sigaction = SYS_rt_sigaction;
    rt_sigprocmask = SYS_rt_sigprocmask;
    rt_sigreturn = SYS_rt_sigreturn;
    rt_sigpending = SYS_rt_sigpending;
    rt_sigsuspend = SYS_rt_sigsuspend;
    rt_sigtimedwait = SYS_rt_sigtimedwait;
    rt_sigqueueinfo = SYS_rt_sigqueueinfo;
    rt_tgsigqueueinfo = SYS_rt_tgsigqueueinfo;
    sigaltstack = SYS_sigaltstack;
    #[cfg(target_arch = "x86_64")]
    pause = SYS_pause;
    signalfd4 = SYS_signalfd4;
    #[cfg(target_arch = "x86_64")]
    signalfd = SYS_signalfd;
    #[cfg(target_arch = "x86_64")]
    time = SYS_time;
    gettimeofday = SYS_gettimeofday;
    clock_gettime = SYS_clock_gettime;
    clock_getres = SYS_clock_getres;
    clock_nanosleep = SYS_clock_nanosleep;
    nanosleep = SYS_nanosleep;
    #[cfg(target_arch = "x86_64")]
    alarm = SYS_alarm;
    getitimer = SYS_getitimer;
    setitimer = SYS_setitimer;
    timer_create = SYS_timer_create;
    timer_settime = SYS_timer_settime;
    timer_gettime = SYS_timer_gettime;
    timer_getoverrun = SYS_timer_getoverrun;
    timer_delete = SYS_timer_delete;
    timerfd_create = SYS_timerfd_create;
    timerfd_settime = SYS_timerfd_settime;
    timerfd_gettime = SYS_timerfd_gettime;
    #[cfg(target_arch = "x86_64")]
    poll = SYS_poll;
    ppoll = SYS_ppoll;
    #[cfg(target_arch = "x86_64")]
    select = SYS_select;
    pselect6 = SYS_pselect6;
    #[cfg(target_arch = "x86_64")]
    epoll_create = SYS_epoll_create;
    epoll_create1 = SYS_epoll_create1;
    epoll_ctl = SYS_epoll_ctl;
    #[cfg(target_arch = "x86_64")]
    epoll_wait = SYS_epoll_wait;
    epoll_pwait = SYS_epoll_pwait;
    epoll_pwait2 = SYS_epoll_pwait2;
    eventfd2 = SYS_eventfd2;
    #[cfg(target_arch = "x86_64")]
    eventfd = SYS_eventfd;
    bind = SYS_bind;
    listen = SYS_listen;
    accept = SYS_accept;
    accept4 = SYS_accept4;
    connect = SYS_connect;
    getsockname = SYS_getsockname;
    getpeername = SYS_getpeername;
    getsockopt = SYS_getsockopt;
    setsockopt = SYS_setsockopt;
    sendto = SYS_sendto;
    recvfrom = SYS_recvfrom;
    sendmsg = SYS_sendmsg;
    recvmsg = SYS_recvmsg;
    sendmmsg = SYS_sendmmsg;
    recvmmsg = SYS_recvmmsg;
    shutdown = SYS_shutdown;
    shmget = SYS_shmget;
    shmat = SYS_shmat;
    shmdt = SYS_shmdt;
    shmctl = SYS_shmctl;
    semget = SYS_semget;
    semop = SYS_semop;
    semtimedop = SYS_semtimedop;
    semctl = SYS_semctl;
    msgget = SYS_msgget;
    msgsnd = SYS_msgsnd;
    msgrcv = SYS_msgrcv;
    msgctl = SYS_msgctl;
    mq_open = SYS_mq_open;
    mq_unlink = SYS_mq_unlink;
    mq_timedsend = SYS_mq_timedsend;
    mq_timedreceive = SYS_mq_timedreceive;
    mq_notify = SYS_mq_notify;
    mq_getsetattr = SYS_mq_getsetattr;
    uname = SYS_uname;
    sysinfo = SYS_sysinfo;
    getrandom = SYS_getrandom;
    ptrace = SYS_ptrace;
    process_vm_readv = SYS_process_vm_readv;
    process_vm_writev = SYS_process_vm_writev;
    process_madvise = SYS_process_madvise;
    process_mrelease = SYS_process_mrelease;
    kcmp = SYS_kcmp;
    pidfd_getfd = SYS_pidfd_getfd;
    userfaultfd = SYS_userfaultfd;
    perf_event_open = SYS_perf_event_open;
    bpf = SYS_bpf;
    io_uring_setup = SYS_io_uring_setup;
    io_uring_enter = SYS_io_uring_enter;
    io_uring_register = SYS_io_uring_register;
    io_setup = SYS_io_setup;
    io_submit = SYS_io_submit;
    io_getevents = SYS_io_getevents;
    io_destroy = SYS_io_destroy;
    io_cancel = SYS_io_cancel;
    add_key = SYS_add_key;
    request_key = SYS_request_key;
    keyctl = SYS_keyctl;
    unshare = SYS_unshare;
    setns = SYS_setns;
    mount = SYS_mount;
    umount2 = SYS_umount2;
    pivot_root = SYS_pivot_root;
    chroot = SYS_chroot;
    open_tree = SYS_open_tree;
    move_mount = SYS_move_mount;
    fsopen = SYS_fsopen;
    fsconfig = SYS_fsconfig;
    fsmount = SYS_fsmount;
    fspick = SYS_fspick;
    mount_setattr = SYS_mount_setattr;
    name_to_handle_at = SYS_name_to_handle_at;
    open_by_handle_at = SYS_open_by_handle_at;
    fanotify_init = SYS_fanotify_init;
    fanotify_mark = SYS_fanotify_mark;
    quotactl = SYS_quotactl;
    acct = SYS_acct;
    swapon = SYS_swapon;
    swapoff = SYS_swapoff;
    reboot = SYS_reboot;
    kexec_load = SYS_kexec_load;
    init_module = SYS_init_module;
    finit_module = SYS_finit_module;
    delete_module = SYS_delete_module;
    #[cfg(target_arch = "x86_64")]
    iopl = SYS_iopl;
    #[cfg(target_arch = "x86_64")]
    ioperm = SYS_ioperm;
    #[cfg(target_arch = "x86_64")]
    modify_ldt = SYS_modify_ldt;
    sethostname = SYS_sethostname;
    setdomainname = SYS_setdomainname;
    settimeofday = SYS_settimeofday;
    clock_settime = SYS_clock_settime;
    clock_adjtime = SYS_clock_adjtime;
    adjtimex = SYS_adjtimex;
    syslog = SYS_syslog;
    vhangup = SYS_vhangup;
    lookup_dcookie = SYS_lookup_dcookie;
    nfsservctl = SYS_nfsservctl;
    setgroups = SYS_setgroups;
    mbind = SYS_mbind;
    set_mempolicy = SYS_set_mempolicy;
    migrate_pages = SYS_migrate_pages;
    move_pages = SYS_move_pages;
    remap_file_pages = SYS_remap_file_pages;
    vmsplice = SYS_vmsplice;
    clone3 = SYS_clone3;
}

/// Allowed in every run.
pub(super) const ALLOWED: &[Allowed] = allowed! {
    // files
    read "reads files, pipes and sockets",
    write "writes them",
    pread64 "reads at a position",
    pwrite64 "writes at a position",
    readv "reads into several buffers",
    writev "writes from several buffers",
    preadv "both: positioned, several buffers",
    pwritev "the same for writing",
    preadv2 "the same with flags",
    pwritev2 "the same with flags",
    #[cfg(target_arch = "x86_64")]
    open "opens files by path; what exists is decided by the mounts",
    openat "the same below a folder",
    openat2 "the same with resolution rules; our own program uses it too",
    #[cfg(target_arch = "x86_64")]
    creat "old form of open",
    close "gives a descriptor back",
    close_range "gives many back, as subprocess libraries do",
    lseek "moves in a file",
    #[cfg(target_arch = "x86_64")]
    stat "looks at a file",
    #[cfg(target_arch = "x86_64")]
    lstat "looks at a link",
    fstat "looks at an open file",
    newfstatat "looks at a file below a folder",
    statx "the newest form",
    statfs "free space",
    fstatfs "free space",
    #[cfg(target_arch = "x86_64")]
    access "may I",
    faccessat "may I, below a folder",
    faccessat2 "may I, with flags",
    getdents64 "lists folders",
    #[cfg(target_arch = "x86_64")]
    getdents "old form",
    getcwd "where am I",
    chdir "goes there",
    fchdir "goes there",
    #[cfg(target_arch = "x86_64")]
    mkdir "makes folders",
    mkdirat "makes folders",
    #[cfg(target_arch = "x86_64")]
    rmdir "removes folders",
    #[cfg(target_arch = "x86_64")]
    unlink "removes files",
    unlinkat "removes files",
    #[cfg(target_arch = "x86_64")]
    rename "renames",
    renameat "renames",
    renameat2 "renames, exchanging",
    #[cfg(target_arch = "x86_64")]
    link "hard links within the run's own places",
    linkat "the same",
    #[cfg(target_arch = "x86_64")]
    symlink "links",
    symlinkat "links",
    #[cfg(target_arch = "x86_64")]
    readlink "reads links",
    readlinkat "reads links",
    #[cfg(target_arch = "x86_64")]
    chmod "modes of own files",
    fchmod "the same",
    fchmodat "the same",
    fchmodat2 "the same with flags",
    #[cfg(target_arch = "x86_64")]
    chown "only to the one id that exists",
    fchown "the same",
    #[cfg(target_arch = "x86_64")]
    lchown "the same",
    fchownat "the same",
    umask "default modes",
    #[cfg(target_arch = "x86_64")]
    utime "file times",
    #[cfg(target_arch = "x86_64")]
    utimes "file times",
    #[cfg(target_arch = "x86_64")]
    futimesat "file times",
    utimensat "file times",
    truncate "cuts files",
    ftruncate "cuts open files",
    fallocate "reserves space, within the size of the tmpfs",
    fadvise64 "reading hints",
    readahead "reading hints",
    fsync "asks for durability; a tmpfs answers at once",
    fdatasync "the same",
    sync_file_range "the same",
    msync "the same for mappings",
    flock "locks",
    fcntl "descriptor flags and locks",
    dup "copies descriptors",
    #[cfg(target_arch = "x86_64")]
    dup2 "copies descriptors",
    dup3 "copies descriptors",
    #[cfg(target_arch = "x86_64")]
    pipe "pipes",
    pipe2 "pipes",
    splice "moves data between pipes and files, as file tools do",
    tee "copies between pipes",
    sendfile "sends a file to a socket",
    copy_file_range "copies files, as cp does",
    getxattr "reads attributes",
    lgetxattr "reads attributes",
    fgetxattr "reads attributes",
    listxattr "lists attributes",
    llistxattr "lists attributes",
    flistxattr "lists attributes",
    setxattr "own attributes; cp -a and tar use it",
    lsetxattr "the same",
    fsetxattr "the same",
    removexattr "the same",
    lremovexattr "the same",
    fremovexattr "the same",
    inotify_init1 "watches files, as build tools do",
    #[cfg(target_arch = "x86_64")]
    inotify_init "old form",
    inotify_add_watch "the same",
    inotify_rm_watch "the same",
    memfd_create "memory files of language runtimes",
    // memory
    mmap "memory",
    munmap "memory",
    mprotect "memory; runtimes compile code",
    pkey_mprotect "protection keys of runtimes",
    pkey_alloc "the same",
    pkey_free "the same",
    mremap "realloc",
    madvise "gives memory back",
    brk "the heap",
    mincore "garbage collectors ask",
    mlock "within RLIMIT_MEMLOCK",
    mlock2 "the same",
    munlock "the same",
    mlockall "the same",
    munlockall "the same",
    get_mempolicy "numeric libraries ask",
    membarrier "runtimes with threads",
    // processes and threads
    #[cfg(target_arch = "x86_64")]
    fork "processes",
    #[cfg(target_arch = "x86_64")]
    vfork "processes",
    execve "programs",
    execveat "programs by descriptor",
    exit "ends a thread",
    exit_group "ends a process",
    wait4 "waits for children",
    waitid "waits for children",
    kill "signals within the run's own process namespace",
    tkill "signals to threads",
    tgkill "signals to threads",
    pidfd_open "waits for a child by descriptor",
    pidfd_send_signal "signals by descriptor, within the namespace",
    getpid "who am I",
    getppid "who started me",
    gettid "which thread",
    getpgid "process groups",
    #[cfg(target_arch = "x86_64")]
    getpgrp "process groups",
    setpgid "process groups",
    getsid "sessions",
    setsid "sessions",
    set_tid_address "threads",
    set_robust_list "threads",
    get_robust_list "threads",
    rseq "threads",
    futex "locks",
    futex_waitv "locks",
    sched_yield "threads",
    sched_getaffinity "how many processors",
    sched_setaffinity "where to run, within the group's share",
    sched_getparam "scheduling questions",
    sched_getscheduler "the same",
    sched_setscheduler "ordinary policies only: RLIMIT_RTPRIO is 0",
    sched_setparam "the same",
    sched_getattr "the same",
    sched_setattr "the same",
    sched_get_priority_max "the same",
    sched_get_priority_min "the same",
    sched_rr_get_interval "the same",
    getpriority "niceness",
    setpriority "may only get nicer",
    ioprio_get "disk niceness",
    ioprio_set "may only get nicer",
    prctl "names of threads, death signals",
    #[cfg(target_arch = "x86_64")]
    arch_prctl "thread area of x86-64",
    getrlimit "limits",
    setrlimit "may only be lowered",
    prlimit64 "the same",
    getrusage "use of resources",
    times "use of processor",
    getcpu "on which processor",
    restart_syscall "the kernel's own way to continue",
    seccomp "a program may restrict itself further",
    landlock_create_ruleset "the same",
    landlock_add_rule "the same",
    landlock_restrict_self "the same",
    // users: one id exists, so these can only name it
    getuid "who",
    geteuid "who",
    getgid "who",
    getegid "who",
    getresuid "who",
    getresgid "who",
    getgroups "who",
    setuid "programs drop to what they are already",
    setgid "the same",
    setreuid "the same",
    setregid "the same",
    setresuid "the same",
    setresgid "the same",
    setfsuid "the same",
    setfsgid "the same",
    capget "asks for capabilities; the answer is none",
    capset "may only drop",
    // signals
    rt_sigaction "signal handlers",
    rt_sigprocmask "signal masks",
    rt_sigreturn "leaves a handler",
    rt_sigpending "pending signals",
    rt_sigsuspend "waits for signals",
    rt_sigtimedwait "waits for signals",
    rt_sigqueueinfo "signals with a value",
    rt_tgsigqueueinfo "the same",
    sigaltstack "stacks of handlers",
    #[cfg(target_arch = "x86_64")]
    pause "waits for a signal",
    signalfd4 "signals by descriptor",
    #[cfg(target_arch = "x86_64")]
    signalfd "old form",
    // time
    #[cfg(target_arch = "x86_64")]
    time "the time",
    gettimeofday "the time",
    clock_gettime "the time",
    clock_getres "its resolution",
    clock_nanosleep "sleep",
    nanosleep "sleep",
    #[cfg(target_arch = "x86_64")]
    alarm "timers",
    getitimer "timers",
    setitimer "timers",
    timer_create "timers",
    timer_settime "timers",
    timer_gettime "timers",
    timer_getoverrun "timers",
    timer_delete "timers",
    timerfd_create "timers by descriptor",
    timerfd_settime "timers by descriptor",
    timerfd_gettime "timers by descriptor",
    // waiting
    #[cfg(target_arch = "x86_64")]
    poll "waits for descriptors",
    ppoll "waits for descriptors",
    #[cfg(target_arch = "x86_64")]
    select "waits for descriptors",
    pselect6 "waits for descriptors",
    #[cfg(target_arch = "x86_64")]
    epoll_create "waits for descriptors",
    epoll_create1 "waits for descriptors",
    epoll_ctl "waits for descriptors",
    #[cfg(target_arch = "x86_64")]
    epoll_wait "waits for descriptors",
    epoll_pwait "waits for descriptors",
    epoll_pwait2 "waits for descriptors",
    eventfd2 "wakes up others",
    #[cfg(target_arch = "x86_64")]
    eventfd "old form",
    // sockets, of the allowed families; where they lead is decided by the gate
    bind "servers within the run",
    listen "servers within the run",
    accept "servers within the run",
    accept4 "servers within the run",
    connect "clients; everything ends at the gate",
    getsockname "addresses",
    getpeername "addresses",
    getsockopt "options",
    setsockopt "options",
    sendto "data",
    recvfrom "data",
    sendmsg "data",
    recvmsg "data",
    sendmmsg "data; resolvers use it",
    recvmmsg "data",
    shutdown "ends",
    // System V and POSIX IPC: the run has an ipc namespace of its own
    shmget "shared memory of databases",
    shmat "the same",
    shmdt "the same",
    shmctl "the same",
    semget "semaphores",
    semop "semaphores",
    semtimedop "semaphores",
    semctl "semaphores",
    msgget "message queues",
    msgsnd "message queues",
    msgrcv "message queues",
    msgctl "message queues",
    mq_open "message queues",
    mq_unlink "message queues",
    mq_timedsend "message queues",
    mq_timedreceive "message queues",
    mq_notify "message queues",
    mq_getsetattr "message queues",
    // the system
    uname "what kernel; the host name is the run's own",
    sysinfo "memory and load",
    getrandom "random bytes",
};

/// Refused by name.
pub(super) const REFUSED: &[Refused] = &[
    (
        "ptrace",
        number::ptrace,
        libc::EPERM,
        "would let one process drive another, also one that is about to be replaced",
    ),
    ("process_vm_readv", number::process_vm_readv, libc::EPERM, "reads the memory of others"),
    ("process_vm_writev", number::process_vm_writev, libc::EPERM, "writes the memory of others"),
    ("process_madvise", number::process_madvise, libc::EPERM, "steers the memory of others"),
    ("process_mrelease", number::process_mrelease, libc::EPERM, "the same"),
    ("kcmp", number::kcmp, libc::EPERM, "compares kernel objects of others"),
    ("pidfd_getfd", number::pidfd_getfd, libc::EPERM, "takes descriptors out of others"),
    (
        "userfaultfd",
        number::userfaultfd,
        libc::EPERM,
        "holds the kernel in the middle of a copy, a tool of exploits",
    ),
    ("perf_event_open", number::perf_event_open, libc::EPERM, "large attack surface, measures neighbours"),
    ("bpf", number::bpf, libc::EPERM, "programs in the kernel"),
    (
        "io_uring_setup",
        number::io_uring_setup,
        libc::EPERM,
        "large attack surface, and its operations pass by this filter",
    ),
    ("io_uring_enter", number::io_uring_enter, libc::EPERM, "the same"),
    ("io_uring_register", number::io_uring_register, libc::EPERM, "the same"),
    (
        "io_setup",
        number::io_setup,
        libc::EPERM,
        "old asynchronous I/O: attack surface, programs fall back to threads",
    ),
    ("io_submit", number::io_submit, libc::EPERM, "the same"),
    ("io_getevents", number::io_getevents, libc::EPERM, "the same"),
    ("io_destroy", number::io_destroy, libc::EPERM, "the same"),
    ("io_cancel", number::io_cancel, libc::EPERM, "the same"),
    ("add_key", number::add_key, libc::EPERM, "key rings are not namespaced by run"),
    ("request_key", number::request_key, libc::EPERM, "the same"),
    ("keyctl", number::keyctl, libc::EPERM, "the same"),
    (
        "unshare",
        number::unshare,
        libc::EPERM,
        "new namespaces bring back capabilities inside them, and kernel code that only they reach",
    ),
    ("setns", number::setns, libc::EPERM, "enters namespaces of others"),
    ("mount", number::mount, libc::EPERM, "mounts are fixed"),
    ("umount2", number::umount2, libc::EPERM, "the same"),
    ("pivot_root", number::pivot_root, libc::EPERM, "the same"),
    ("chroot", number::chroot, libc::EPERM, "the same"),
    ("open_tree", number::open_tree, libc::EPERM, "the new mount interface"),
    ("move_mount", number::move_mount, libc::EPERM, "the same"),
    ("fsopen", number::fsopen, libc::EPERM, "the same"),
    ("fsconfig", number::fsconfig, libc::EPERM, "the same"),
    ("fsmount", number::fsmount, libc::EPERM, "the same"),
    ("fspick", number::fspick, libc::EPERM, "the same"),
    ("mount_setattr", number::mount_setattr, libc::EPERM, "the same"),
    ("name_to_handle_at", number::name_to_handle_at, libc::EPERM, "first half of the way past folders"),
    (
        "open_by_handle_at",
        number::open_by_handle_at,
        libc::EPERM,
        "second half: opens by inode, past every mount (the Shocker escape)",
    ),
    ("fanotify_init", number::fanotify_init, libc::EPERM, "watches whole mounts"),
    ("fanotify_mark", number::fanotify_mark, libc::EPERM, "the same"),
    ("quotactl", number::quotactl, libc::EPERM, "quotas of the host"),
    ("acct", number::acct, libc::EPERM, "process accounting of the host"),
    ("swapon", number::swapon, libc::EPERM, "swap of the host"),
    ("swapoff", number::swapoff, libc::EPERM, "the same"),
    ("reboot", number::reboot, libc::EPERM, "the host's power"),
    ("kexec_load", number::kexec_load, libc::EPERM, "another kernel"),
    ("init_module", number::init_module, libc::EPERM, "kernel modules"),
    ("finit_module", number::finit_module, libc::EPERM, "the same"),
    ("delete_module", number::delete_module, libc::EPERM, "the same"),
    #[cfg(target_arch = "x86_64")]
    ("iopl", number::iopl, libc::EPERM, "ports of the machine"),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", number::ioperm, libc::EPERM, "the same"),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", number::modify_ldt, libc::EPERM, "segments: exploit surface, only old emulators need it"),
    ("sethostname", number::sethostname, libc::EPERM, "the name is fixed"),
    ("setdomainname", number::setdomainname, libc::EPERM, "the same"),
    ("settimeofday", number::settimeofday, libc::EPERM, "the clock of the host"),
    ("clock_settime", number::clock_settime, libc::EPERM, "the same"),
    ("clock_adjtime", number::clock_adjtime, libc::EPERM, "the same"),
    ("adjtimex", number::adjtimex, libc::EPERM, "the same"),
    ("syslog", number::syslog, libc::EPERM, "the kernel's log tells about the host"),
    ("vhangup", number::vhangup, libc::EPERM, "terminals"),
    ("lookup_dcookie", number::lookup_dcookie, libc::EPERM, "profiling"),
    ("nfsservctl", number::nfsservctl, libc::EPERM, "long gone"),
    ("setgroups", number::setgroups, libc::EPERM, "denied in the user namespace as well"),
    ("mbind", number::mbind, libc::EPERM, "memory placement is the host's"),
    ("set_mempolicy", number::set_mempolicy, libc::EPERM, "the same"),
    ("migrate_pages", number::migrate_pages, libc::EPERM, "the same"),
    ("move_pages", number::move_pages, libc::EPERM, "the same"),
    ("remap_file_pages", number::remap_file_pages, libc::EPERM, "old and odd"),
    ("vmsplice", number::vmsplice, libc::EPERM, "gifts memory to pipes; has been a bug before"),
    (
        "clone3",
        number::clone3,
        libc::ENOSYS,
        "its flags are in memory, where no filter sees them; libraries fall back to clone",
    ),
];

/// Unix, IPv4 and IPv6; nothing that speaks with the host's kernel or hardware (netlink, packet, vsock, alg, bluetooth).
/// Netlink is not needed to resolve names; only programs that list network interfaces miss it.
const FAMILIES: Check = Check {
    argument: 0,
    mask: u32::MAX,
    values: &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32],
    rule: Membership::OneOf,
    errno: libc::EPERM,
};
/// Streams, datagrams and sequenced packets, no raw ones; the flags above the low four bits are free.
const SOCKET_TYPES: Check = Check {
    argument: 1,
    mask: 0xf,
    values: &[libc::SOCK_STREAM as u32, libc::SOCK_DGRAM as u32, libc::SOCK_SEQPACKET as u32],
    rule: Membership::OneOf,
    errno: libc::EPERM,
};
/// The family's own, TCP and UDP. Others (MPTCP, SCTP, ping) do not exist, so that programs fall back to TCP.
const PROTOCOLS: Check = Check {
    argument: 2,
    mask: u32::MAX,
    values: &[0, libc::IPPROTO_TCP as u32, libc::IPPROTO_UDP as u32],
    rule: Membership::OneOf,
    errno: libc::EPROTONOSUPPORT,
};
const UNIX_ONLY: Check = Check { values: &[libc::AF_UNIX as u32], ..FAMILIES };
/// Threads and processes, but no new namespace (CLONE_NEW*).
const NO_NAMESPACES: Check =
    Check { argument: 0, mask: 0x7e02_0000, values: &[0], rule: Membership::OneOf, errno: libc::EPERM };
/// TIOCSTI types into a terminal as if it were the user, TIOCLINUX does the same on a console, TIOCSETD loads line disciplines.
const NO_TERMINAL_TRICKS: Check = Check {
    argument: 1,
    mask: u32::MAX,
    values: &[0x5412, 0x541c, 0x5423],
    rule: Membership::NoneOf,
    errno: libc::EPERM,
};
/// Plain execution domain, or the question which one it is. Others switch address randomisation off.
const PLAIN_PERSONALITY: Check = Check {
    argument: 0,
    mask: u32::MAX,
    values: &[0, u32::MAX],
    rule: Membership::OneOf,
    errno: libc::EPERM,
};
/// Plain files, pipes and sockets; no device nodes.
const NO_DEVICES: Check = Check {
    argument: 1,
    mask: libc::S_IFMT,
    values: &[0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK],
    rule: Membership::OneOf,
    errno: libc::EPERM,
};
const NO_DEVICES_AT: Check = Check { argument: 2, ..NO_DEVICES };

/// Allowed when the arguments are harmless.
pub(super) const CONDITIONAL: &[Conditional] = &[
    Conditional { name: "socket", number: libc::SYS_socket, checks: &[FAMILIES, SOCKET_TYPES, PROTOCOLS] },
    Conditional { name: "socketpair", number: libc::SYS_socketpair, checks: &[UNIX_ONLY] },
    Conditional { name: "clone", number: libc::SYS_clone, checks: &[NO_NAMESPACES] },
    Conditional { name: "ioctl", number: libc::SYS_ioctl, checks: &[NO_TERMINAL_TRICKS] },
    Conditional { name: "personality", number: libc::SYS_personality, checks: &[PLAIN_PERSONALITY] },
    #[cfg(target_arch = "x86_64")]
    Conditional { name: "mknod", number: libc::SYS_mknod, checks: &[NO_DEVICES] },
    Conditional { name: "mknodat", number: libc::SYS_mknodat, checks: &[NO_DEVICES_AT] },
];

/// Answered with success without doing anything: `sync` would write out every file system of the host, and a run's
/// own are in memory.
pub(super) const IGNORED: &[Allowed] = &[
    ("sync", libc::SYS_sync, "databases and package tools call it"),
    ("syncfs", libc::SYS_syncfs, "the same"),
];
