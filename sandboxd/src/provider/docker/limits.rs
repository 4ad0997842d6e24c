//! Numbers of the provider that no operator chooses.

use std::time::Duration;

/// How long the engine may take to answer one question, in seconds: it copies an image's files for a container where its
/// storage knows nothing better.
pub(super) const ENGINE_SECONDS: u64 = 60;
/// How long a container may take to say that it stands, after it was started.
pub(super) const READY_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of /etc/ssl: the bundle of roots has 250 KiB.
pub(super) const CERTIFICATE_BYTES: u64 = 4 << 20;
/// What gVisor itself needs besides the run's, in bytes and in threads; see the provider `gvisor`.
pub(super) const KERNEL_BYTES: u64 = 96 << 20;
pub(super) const KERNEL_THREADS: u64 = 96;
/// Bytes of one frame of output that are read from the engine's stream at once.
pub(super) const READ_BYTES: usize = 64 << 10;
