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
    owner: Owner<'a>,
}

/// The end of each line. INVARIANT: nothing comes after it, so that it can be encoded by itself.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Owner<'a> {
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
#[derive(Debug, Default)]
pub struct Chain {
    seq: u64,
    head: Digest,
    ending: Ending,
}

impl Chain {
    /// Continues after record `seq`, whose line hashes to `head`.
    pub fn after(seq: u64, head: Digest) -> Self {
        Self { seq, head, ending: Ending::default() }
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
        if let Err(error) = self.line(time_unix_ms, entry, out) {
            out.truncate(start);
            return Err(error);
        }
        self.head = Digest::of(out.get(start..).unwrap_or_default());
        self.seq += 1;
        out.push(b'\n');
        Ok(self.seq)
    }

    fn line(&mut self, time_unix_ms: u64, entry: &Entry, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let time = rfc3339_ms(time_unix_ms);
        let (seq, prev, event) = (self.seq + 1, self.head, &entry.event);
        encode(&Record { seq, prev, time: &time, event, owner: Owner::default() }, out)?;
        let ending = self.ending.of(entry)?;
        // The brace that ended the object comes again with the ending.
        out.pop();
        out.extend_from_slice(ending);
        Ok(())
    }
}

/// Who and under which policy, as it ends a line. Most records in a row are of one run: they are encoded once.
#[derive(Debug, Default)]
struct Ending {
    run: Option<Arc<RunIdentity>>,
    policy: Option<Arc<PolicyIdentity>>,
    /// From the comma on, or only the brace. Empty until the first record.
    text: Vec<u8>,
}

impl Ending {
    fn of(&mut self, entry: &Entry) -> Result<&[u8], EncodeError> {
        let same =
            same(self.run.as_ref(), entry.run.as_ref()) && same(self.policy.as_ref(), entry.policy.as_ref());
        if self.text.is_empty() || !same {
            // Empty if this fails, and so not taken for another's.
            let mut text = std::mem::take(&mut self.text);
            text.clear();
            encode(&Owner { run: entry.run.as_deref(), policy: entry.policy.as_deref() }, &mut text)?;
            match text.as_mut_slice() {
                [b'{', b'}'] => drop(text.remove(0)),
                [first, ..] => *first = b',',
                [] => {}
            }
            self.text = text;
            (self.run, self.policy) = (entry.run.clone(), entry.policy.clone());
        }
        Ok(&self.text)
    }
}

/// The very same, not an equal one: held here, so that its place is no other's.
fn same<T>(kept: Option<&Arc<T>>, given: Option<&Arc<T>>) -> bool {
    match (kept, given) {
        (Some(kept), Some(given)) => Arc::ptr_eq(kept, given),
        (None, None) => true,
        _ => false,
    }
}

fn encode(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, Ascii::default()))?;
    Ok(())
}
