//! Numbers of the provider that no operator chooses.

/// Memory that gVisor itself needs besides the run's, in bytes: the kernel (about 40 MiB with a network), the file server
/// and the waiting `runsc` (about 15 MiB each), measured with release 20221219. The group's limit is the run's memory and
/// this; without it a run of 64 MiB would not start.
pub(super) const KERNEL_BYTES: u64 = 96 << 20;

/// Threads that gVisor itself needs besides the run's: about 40 when idle, and a few for each processor. The run's threads are
/// threads of the host as well, so the group's limit is the run's number, this, and one more for each process.
pub(super) const KERNEL_THREADS: u64 = 96;

/// Bytes of the runtime's own files: the root's mount points with the generated /etc, its state, its messages.
pub(super) const RUNTIME_BYTES: u64 = 8 << 20;
/// Inodes of the same.
pub(super) const RUNTIME_INODES: u64 = 2048;

/// Open descriptors of gVisor's kernel and its file server: each open file of the run is one of theirs, and mappings more.
pub(super) const KERNEL_OPEN_FILES: u64 = 1 << 16;
