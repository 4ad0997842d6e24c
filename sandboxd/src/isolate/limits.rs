//! Numbers of the boundary that no operator chooses.

/// Bytes of /tmp. More is ENOSPC. Its pages count as memory of the run too.
pub const TMP_BYTES: u64 = 64 << 20;
/// Inodes of /tmp: a build's temporary files fit; an inode bomb ends at ENOSPC.
pub const TMP_INODES: u64 = 16_384;
/// Bytes of /dev/shm: enough for the shared memory of multiprocessing programs.
pub const SHM_BYTES: u64 = 64 << 20;
/// Inodes of /dev/shm.
pub const SHM_INODES: u64 = 1024;
/// Bytes of the root's own tmpfs: mount points and the generated /etc with the CA bundle (about 250 KiB).
pub const ROOT_BYTES: u64 = 4 << 20;
/// Inodes of the root's own tmpfs.
pub const ROOT_INODES: u64 = 1024;
/// Bytes of work directory per inode: what many small files need at least.
pub const BYTES_PER_INODE: u64 = 4096;
/// Open descriptors per process, the kernel's usual hard limit for ordinary users is 1,048,576; a run needs far fewer.
pub const OPEN_FILES: u64 = 4096;
/// Bytes that POSIX message queues of the run may hold in all.
pub const MESSAGE_QUEUE_BYTES: u64 = 1 << 20;
/// Bytes of locked memory per process.
pub const LOCKED_MEMORY_BYTES: u64 = 1 << 20;
/// Largest file that a process may write: beyond the work directory's size anyway, so a sparse giant ends early.
pub const FILE_BYTES: u64 = 16 << 30;
/// Queued signals of the run.
pub const PENDING_SIGNALS: u64 = 1024;
/// Period of the processor quota in microseconds, the kernel's default.
pub const CPU_PERIOD_US: u64 = 100_000;
