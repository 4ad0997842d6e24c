//! Every number of the guest program.

use std::time::Duration;

/// Largest frame in bytes: an artifact or a project file of the wire contract's total (8 MiB) fits. A larger one ends
/// the run.
pub const MAX_FRAME_BYTES: usize = 9 << 20;

/// Bytes read from a step's pipe at once: the default size of a pipe.
pub const READ_CHUNK_BYTES: usize = 64 << 10;

/// Bytes of one stream that are read and thrown away after the kept part. A step that writes more is killed with exit
/// code 153, as by SIGXFSZ: it would burn a processor until its deadline for nothing.
pub const FLOOD_BYTES: u64 = 64 << 20;

/// Bytes that are still read from the pipes of a step after it ended: what it had written is in the pipe (at most
/// 1 MiB, fs.pipe-max-size); what survivors in the background go on writing is not waited for.
pub const DRAIN_BYTES: usize = 1 << 20;

/// How often orphans are reaped while a step runs. They cost one process slot each until then.
pub const REAP_INTERVAL: Duration = Duration::from_millis(100);

/// How often the end of a step is looked for in a kernel that cannot report it by a descriptor. Output wakes the program
/// at once, and the end of both pipes too, so this delays only a step that leaves children behind.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// How long killed processes may take to be gone at the end. Nothing but the kernel can delay them; afterwards pid 1
/// ends all the same, and with it the whole namespace.
pub const KILL_WAIT: Duration = Duration::from_secs(2);

/// How often it is looked whether killed processes are gone. They are gone within a fraction of a millisecond, unless
/// the processor is somebody else's.
pub const SWEEP_INTERVAL: Duration = Duration::from_micros(200);

/// How long an interpreter may take to be ready for its first cell; a busy machine needs seconds. Then the cell is refused:
/// its code was not sent.
pub const START_WAIT: Duration = Duration::from_secs(30);

/// Bytes of what an interpreter says on its line that are kept while its answer is looked for. An answer has 18.
pub const LINE_BYTES: usize = 4096;

/// How long the channel's device may take to appear in a microVM that starts on a busy machine without hardware support.
/// Then the machine ends, and nothing ran.
pub const DEVICE_WAIT: Duration = Duration::from_secs(20);

/// How often it is looked for.
pub const DEVICE_INTERVAL: Duration = Duration::from_millis(1);
