//! Entries become lines, each carrying the hash of the line before.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::escape::Ascii;
use crate::{Event, PolicyIdentity, RunIdentity, rfc3339_ms};

/// A SHA-256 digest; 64 lower-case hex digits as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest([u8; 32]);

impl Digest {
    /// What the first record of a log names as the line before it.
    pub const ZERO: Self = Self([0; 32]);

    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads exactly 64 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        if text.len() != 64 {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let nibble = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            let &[high, low] = pair else { return None };
            *byte = nibble(high)? << 4 | nibble(low)?;
        }
        Some(Self(digest))
    }

    pub const fn bytes(self) -> [u8; 32] {
        self.0
    }

    fn hex(self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            for (digit, nibble) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
                *digit = DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'?');
            }
        }
        text
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl JsonSchema for Digest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Digest".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

/// What happened, to whom, under which policy.
#[derive(Debug, Clone)]
pub struct Entry {
    /// `None` only while no policy has been loaded.
    pub policy: Option<Arc<PolicyIdentity>>,
    /// `None` for what concerns the broker itself.
    pub run: Option<Arc<RunIdentity>>,
    pub event: Event,
}

/// One line of the log.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Record<'a> {
    /// Counts up by one from 1, across files and restarts.
    seq: u64,
    /// SHA-256 of the line before, without its line feed; zeros for the first.
    prev: Digest,
    /// UTC, RFC 3339 with milliseconds: when the event ended.
    time: &'a str,
    #[serde(flatten)]
    event: &'a Event,
    #[serde(flatten)]
    run: Option<&'a RunIdentity>,
    #[serde(flatten)]
    policy: Option<&'a PolicyIdentity>,
}

/// The event cannot be written as JSON: a fault of this crate.
#[derive(Debug, thiserror::Error)]
#[error("an audit record does not encode")]
pub struct EncodeError(#[from] serde_json::Error);

/// The end of the chain: what the next record must name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    seq: u64,
    head: Digest,
}

impl Default for Chain {
    fn default() -> Self {
        Self { seq: 0, head: Digest::ZERO }
    }
}

impl Chain {
    /// Continues after record `seq`, whose line hashes to `head`.
    pub const fn after(seq: u64, head: Digest) -> Self {
        Self { seq, head }
    }

    /// Number of the last record; 0 = none yet.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Hash of the last line.
    pub const fn head(&self) -> Digest {
        self.head
    }

    /// Appends the entry as one line to `out` and moves the chain on. On an error `out` and the chain are as before.
    pub fn append(
        &mut self,
        time_unix_ms: u64,
        entry: &Entry,
        out: &mut Vec<u8>,
    ) -> Result<u64, EncodeError> {
        let start = out.len();
        let time = rfc3339_ms(time_unix_ms);
        let record = Record {
            seq: self.seq + 1,
            prev: self.head,
            time: &time,
            event: &entry.event,
            run: entry.run.as_deref(),
            policy: entry.policy.as_deref(),
        };
        let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Ascii::default());
        if let Err(error) = record.serialize(&mut serializer) {
            out.truncate(start);
            return Err(error.into());
        }
        self.head = Digest::of(out.get(start..).unwrap_or_default());
        self.seq += 1;
        out.push(b'\n');
        Ok(self.seq)
    }
}
