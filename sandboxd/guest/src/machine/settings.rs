//! What the first process of a machine is told: words of the kernel's command line. The daemon writes them, the guest reads
//! them; both are here so that they cannot differ.

use freeboard_netns::Families;

/// Before each of our words; the kernel takes such a word for a module's option and leaves it alone.
const PREFIX: &str = "freeboard.";

/// The numbers of a run, and its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub memory_bytes: u64,
    pub pids: u64,
    pub disk_bytes: u64,
    pub inodes: u64,
    /// `None` = nothing but the loopback link.
    pub gate: Option<Families>,
}

impl Settings {
    /// For the command line.
    pub fn words(&self) -> String {
        let gate = match self.gate {
            None => "none",
            Some(Families::V4) => "v4",
            Some(Families::Both) => "both",
        };
        let Self { memory_bytes, pids, disk_bytes, inodes, .. } = self;
        format!(
            "{PREFIX}memory={memory_bytes} {PREFIX}pids={pids} {PREFIX}disk={disk_bytes} {PREFIX}inodes={inodes} \
             {PREFIX}gate={gate}"
        )
    }

    /// From a whole command line; `None` when a word is missing or means nothing.
    pub fn parse(line: &str) -> Option<Self> {
        let word = |name: &str| {
            line.split_whitespace()
                .find_map(|word| word.strip_prefix(PREFIX)?.strip_prefix(name)?.strip_prefix('='))
        };
        let number = |name: &str| word(name)?.parse().ok();
        let gate = match word("gate")? {
            "none" => None,
            "v4" => Some(Families::V4),
            "both" => Some(Families::Both),
            _ => return None,
        };
        Some(Self {
            memory_bytes: number("memory")?,
            pids: number("pids")?,
            disk_bytes: number("disk")?,
            inodes: number("inodes")?,
            gate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for gate in [None, Some(Families::V4), Some(Families::Both)] {
            let settings =
                Settings { memory_bytes: 1 << 28, pids: 64, disk_bytes: 1 << 20, inodes: 99, gate };
            let line = format!("console=ttyS0 quiet {} panic=-1\n", settings.words());
            assert_eq!(Settings::parse(&line), Some(settings));
        }
        assert_eq!(Settings::parse("console=ttyS0 freeboard.memory=1"), None);
    }
}
