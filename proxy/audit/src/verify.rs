//! Reads a log from its first line and finds the first record that is broken, missing or out of order.

use serde::Deserialize;

use crate::Digest;

/// Longest line that is read, in bytes. The encoder's own lines stay far below (about 40 fields of 2 KiB); longer is a fault.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// The first thing that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct Fault {
    /// Counted from 1 over all files that were read.
    pub line: u64,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// Also what a changed byte in the line before looks like.
    #[error(
        "record {seq} does not follow the line before it: that line was changed, or lines between were removed"
    )]
    Chain { seq: u64 },
    #[error("record {found} stands where record {expected} should be: records are missing or out of order")]
    Order { expected: u64, found: u64 },
    #[error("not an audit record")]
    NotARecord,
    #[error("the log ends before record {expected}, whose hash was given")]
    AnchorMissing { expected: u64 },
    #[error("record {seq} hashes to something else than was given: it, or a record before it, was rewritten")]
    AnchorDiffers { seq: u64 },
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of the first record; more than 1 when older files were taken away.
    pub first: u64,
    /// Last record that verified.
    pub last: u64,
    /// Hash of its line: keep it elsewhere, and compare later.
    pub head: Digest,
    pub records: u64,
    /// Torn lines in the middle that a `recovered` record accounts for (crashes).
    pub recovered: u64,
    /// Bytes of a torn last line. Not a fault: a crash tears at most the line that was being written.
    pub torn_tail: Option<usize>,
}

#[derive(Deserialize)]
struct Frame<'a> {
    seq: u64,
    #[serde(borrow)]
    prev: &'a str,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    torn_sha256: Option<&'a str>,
    #[serde(default)]
    torn_bytes: Option<u64>,
}

/// Feed it every line in order, the files of a rotated log one after the other.
#[derive(Debug, Clone, Default)]
pub struct Verifier {
    report: Report,
    line: u64,
    /// A line that is no record; only good if the next one accounts for it.
    suspect: Option<(u64, Digest, usize)>,
    anchor: Option<(u64, Digest)>,
}

impl Verifier {
    pub fn new() -> Self {
        Self::default()
    }

    /// Also checks that record `seq` hashes to `head`, as noted earlier: this finds a log rewritten as a whole, or cut.
    pub fn with_anchor(seq: u64, head: Digest) -> Self {
        Self { anchor: Some((seq, head)), ..Self::default() }
    }

    /// What was verified so far.
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// Takes one line without its line feed.
    pub fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.line += 1;
        let Some(frame) =
            std::str::from_utf8(line).ok().and_then(|text| serde_json::from_str::<Frame<'_>>(text).ok())
        else {
            return self.suspect(line);
        };
        self.settle_suspect(&frame)?;
        let (seq, prev) = (frame.seq, Digest::parse(frame.prev));
        if self.report.records == 0 {
            if (seq == 1) != (prev == Some(Digest::ZERO)) || seq == 0 {
                return Err(self.fault(FaultKind::Chain { seq }));
            }
            self.report.first = seq;
        } else if seq != self.report.last + 1 {
            return Err(self.fault(FaultKind::Order { expected: self.report.last + 1, found: seq }));
        } else if prev != Some(self.report.head) {
            return Err(self.fault(FaultKind::Chain { seq }));
        }
        let head = Digest::of(line);
        if self.anchor.is_some_and(|(at, expected)| at == seq && expected != head) {
            return Err(self.fault(FaultKind::AnchorDiffers { seq }));
        }
        self.report.last = seq;
        self.report.head = head;
        self.report.records += 1;
        Ok(())
    }

    /// Whether `line` would be the next record.
    pub fn would_accept(&self, line: &[u8]) -> bool {
        let mut trial = self.clone();
        trial.line(line).is_ok() && trial.report.records > self.report.records
    }

    /// Takes what stands after the last line feed, and ends. Empty in a log that was closed in order.
    pub fn finish(mut self, rest: &[u8]) -> Result<Report, Fault> {
        if let Some((line, ..)) = self.suspect {
            return Err(Fault { line, kind: FaultKind::NotARecord });
        }
        if !rest.is_empty() {
            self.report.torn_tail = Some(rest.len());
        }
        if let Some((expected, _)) = self.anchor.filter(|(seq, _)| self.report.last < *seq) {
            self.line += 1;
            return Err(self.fault(FaultKind::AnchorMissing { expected }));
        }
        Ok(self.report)
    }

    const fn fault(&self, kind: FaultKind) -> Fault {
        Fault { line: self.line, kind }
    }

    fn suspect(&mut self, line: &[u8]) -> Result<(), Fault> {
        if let Some((line, ..)) = self.suspect {
            return Err(Fault { line, kind: FaultKind::NotARecord });
        }
        self.suspect = Some((self.line, Digest::of(line), line.len()));
        Ok(())
    }

    /// A line that is no record is accepted only when the next record says what stood there.
    fn settle_suspect(&mut self, frame: &Frame<'_>) -> Result<(), Fault> {
        let Some((line, digest, length)) = self.suspect.take() else { return Ok(()) };
        let accounted = frame.kind == "recovered"
            && frame.torn_sha256.and_then(Digest::parse) == Some(digest)
            && frame.torn_bytes == u64::try_from(length).ok();
        if !accounted {
            return Err(Fault { line, kind: FaultKind::NotARecord });
        }
        self.report.recovered += 1;
        Ok(())
    }
}
