//! Numbers of the provider that no operator chooses.

use std::time::Duration;

/// Memory in MiB that the machine's own kernel takes besides the run's: its code and tables, and the pages of the modules.
/// Measured with Debian's 6.1: 74 MiB of 352 are gone before the first step.
pub(super) const KERNEL_MIB: u64 = 96;
/// The least that a machine boots with, whatever a run may have.
pub(super) const LEAST_MIB: u64 = 160;

/// Memory that QEMU itself needs besides the machine's, in bytes: its own pages, the buffers of its devices and what it
/// reads of the root.
pub(super) const QEMU_BYTES: u64 = 128 << 20;
/// Size of the buffer of translated code in MiB, where QEMU translates; its default is a quarter of the host's memory.
pub(super) const TRANSLATED_MIB: u64 = 128;

/// Threads of QEMU: one for each processor, one for events, and those that serve files (64 at most in its pool).
pub(super) const QEMU_THREADS: u64 = 96;
/// Most processors of a machine. A run may have more time than that, but sees no more of them.
pub(super) const MOST_PROCESSORS: u64 = 16;

/// Open descriptors of QEMU: each open file of the run is one of its own.
pub(super) const OPEN_FILES: u64 = 1 << 16;

/// Bytes of QEMU's own files: the root's mount points, the generated /etc, the initramfs (the guest program and seven
/// modules: 3 MiB, 30 in a build for development), messages.
pub(super) const ROOT_BYTES: u64 = 64 << 20;
/// Inodes of the same.
pub(super) const ROOT_INODES: u64 = 2048;
/// Bytes of what the machine and QEMU say.
pub(super) const TMP_BYTES: u64 = 1 << 20;

/// How long the first boot with KVM may take. It takes less than one second; a KVM that creates machines and runs none
/// (inside another one, for example) would be waited for without end.
pub(super) const PROOF_SECONDS: u64 = 15;

/// How long a translated machine may take to boot: four seconds on an idle host, many more on a busy one.
pub(super) const TRANSLATED_SECONDS: u64 = 90;
/// How long the processor's counter is watched to learn its rate, once: long enough for a ten-thousandth.
pub(super) const TICKS_SPAN: Duration = Duration::from_millis(10);

/// How long QEMU may take to answer a question about itself: milliseconds.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Longest line of QEMU's monitor that is read.
pub(super) const LINE_BYTES: usize = 64 << 10;
/// Lines that are read until the answer comes: events may come before it.
pub(super) const LINES: usize = 64;

/// Largest kernel module or guest program that goes into the initramfs.
pub(super) const PIECE_BYTES: u64 = 64 << 20;
