//! Reads the broker's audit log.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The log of one broker.
#[derive(Debug, Clone)]
pub struct AuditLog {
    folder: PathBuf,
}

impl AuditLog {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// All complete records, oldest first. A line that a crash tore is passed over where a `recovered` record follows.
    pub fn records(&self) -> Vec<Value> {
        let text = self.text();
        let complete: Vec<&str> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
        let read = |at: usize| serde_json::from_str::<Value>(complete.get(at).copied().unwrap_or_default());
        let record = |at: usize| match read(at) {
            Ok(record) => Some(record),
            Err(_) if read(at + 1).is_ok_and(|next| next["kind"] == "recovered") => None,
            Err(error) => panic!("not JSON ({error}): {}", complete[at]),
        };
        (0..complete.len()).filter_map(record).collect()
    }

    /// The log as it is on disk, all files in order.
    pub fn text(&self) -> String {
        self.files().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    /// The files of the log, oldest first.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(&self.folder)
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        files
    }

    /// Records that are decisions of this run (requests, tunnels, handshakes, connections, DNS).
    pub fn decisions(&self, run: &str) -> Vec<Value> {
        let kinds = ["request", "tunnel", "tls", "connection", "dns"];
        let of_run =
            |record: &Value| record["run"] == run && kinds.iter().any(|kind| record["kind"] == *kind);
        self.records().into_iter().filter(of_run).collect()
    }

    /// The [decisions](Self::decisions) of this run that let their request through, or those that did not. An answer is sent
    /// before its record is written: a test that expects one more record of one sort is not misled by a late one of the other.
    pub fn decisions_that(&self, allowed: bool, run: &str) -> Vec<Value> {
        let mut decisions = self.decisions(run);
        decisions.retain(|record| (record["verdict"] == "allowed") == allowed);
        decisions
    }
}
