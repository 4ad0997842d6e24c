//! Every number of this crate: value, unit, reason, what happens at the limit.

use std::time::Duration;

/// Most granted ports of one gate besides the standing ones. Descriptors travel in one control frame (at most 64);
/// a policy that needs more is refused when the gate is planned.
pub const MAX_GRANTED_PORTS: usize = 48;

/// Connections that may wait in one door's accept queue. The kernel cuts it to `net.core.somaxconn` (4096); a guest
/// that overruns it delays only itself, because the queue is its own.
pub const ACCEPT_QUEUE: i32 = 1024;

/// How long one answer of the kernel is waited for. It answers at once or not at all; at the limit the step fails.
pub const NETLINK_ANSWER: Duration = Duration::from_secs(2);

/// Bytes of one answer of the kernel. Acknowledgements repeat the request, which is under 4 KiB for the largest
/// redirect; a longer answer is cut and its error code, which comes first, still read.
pub const NETLINK_ANSWER_BYTES: usize = 16 << 10;

/// Bytes read from one file of `/proc/PID/net`. A namespace of ours fills a few hundred; at the limit the reading fails
/// rather than report half a table.
pub const MAX_TABLE_BYTES: u64 = 1 << 20;

/// Room for such a file as it usually is, in bytes: it has no size to ask for, and a growing buffer takes a call of the
/// kernel per doubling.
pub const USUAL_TABLE_BYTES: usize = 4 << 10;
