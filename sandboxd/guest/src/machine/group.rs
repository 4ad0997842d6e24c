//! The control group of all processes of a machine. No step sees it: it is outside of their root.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::protocol::Counted;
use crate::witness::Fact;

/// Where the control groups are until the root is left.
pub(super) const PLACE: &str = "/groups";
/// Room for `memory.events` and `pids.events`.
const EVENTS_BYTES: usize = 1024;

/// Handles that stay when the files themselves are out of reach.
#[derive(Debug)]
pub struct Group {
    memory: File,
    pids: File,
}

impl Group {
    /// Makes it, with this process in it. The facts are the limits as the kernel holds them.
    pub(super) fn make(memory_bytes: u64, pids: u64) -> io::Result<(Self, Vec<Fact>)> {
        let root = Path::new(PLACE);
        let group = root.join("run");
        std::fs::write(root.join("cgroup.subtree_control"), "+memory +pids")?;
        std::fs::create_dir(&group)?;
        let mut facts = Vec::new();
        // This process is one of them, and no process of the run.
        for (file, name, limit) in [
            ("memory.max", "guest_memory_max", memory_bytes),
            ("pids.max", "guest_pids_max", pids.saturating_add(1)),
        ] {
            let file = group.join(file);
            std::fs::write(&file, limit.to_string())?;
            let set = std::fs::read_to_string(&file)?.trim().to_owned();
            let met = set.parse::<u64>().is_ok_and(|set| set <= limit);
            facts.push((name.to_owned(), set, met));
        }
        std::fs::write(group.join("cgroup.procs"), "0")?;
        let (memory, pids) =
            (File::open(group.join("memory.events"))?, File::open(group.join("pids.events"))?);
        Ok((Self { memory, pids }, facts))
    }

    /// What was counted so far; what cannot be read counts as nothing.
    pub(crate) fn counted(&self) -> Counted {
        Counted { memory_kills: event(&self.memory, "oom_kill"), pids_refusals: event(&self.pids, "max") }
    }
}

fn event(file: &File, name: &str) -> u64 {
    let mut text = [0; EVENTS_BYTES];
    let read = file.read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default());
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
