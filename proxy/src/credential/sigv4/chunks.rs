//! Bodies in signed chunks (`aws-chunked`): each signature is replaced by ours, of the same length.
//!
//! In: `SIZE;chunk-signature=…` CRLF, data, CRLF, …, a last chunk of size 0, perhaps trailer fields with a signature of
//! their own. Out: the same bytes with our signatures. A chunk is held until it is whole, because its signature stands
//! before its data.

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{hex, mac};
use crate::error::Stop;
use crate::limits::{SIGNED_CHUNK_BYTES, SIGNED_CHUNK_LINE_BYTES};

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Hexadecimal digits of an HMAC-SHA-256.
const SIGNATURE_DIGITS: usize = 64;

/// Signs the chunks of one body.
pub struct Resigner {
    key: Zeroizing<[u8; 32]>,
    /// Time and scope, as each text to sign has them.
    context: String,
    pub(super) previous: String,
    pending: Vec<u8>,
    out: Vec<u8>,
    taken: bool,
    state: State,
    trailer: Vec<u8>,
    trailer_is_signed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the line of a chunk.
    Line,
    /// Before the data of a chunk of this size and its CRLF.
    Data(usize),
    /// After the last chunk: trailer lines, and the empty one.
    Trailer,
    Done,
}

impl std::fmt::Debug for Resigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resigner").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Resigner {
    /// `key` signs for the day and service of `scope`; `seed` is the signature of the head.
    pub fn new(key: Zeroizing<[u8; 32]>, time: &str, scope: &str, seed: String) -> Self {
        Self {
            key,
            context: format!("{time}\n{scope}"),
            previous: seed,
            pending: Vec::new(),
            out: Vec::new(),
            taken: false,
            state: State::Line,
            trailer: Vec::new(),
            trailer_is_signed: false,
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// They are no signed chunks, or ones that are too large.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Stop> {
        if std::mem::take(&mut self.taken) {
            self.out.clear();
        }
        self.pending.extend_from_slice(piece);
        let mut at = 0;
        while let Some(used) = self.step(at)? {
            at += used;
        }
        self.pending.drain(..at);
        Ok(())
    }

    pub fn has_output(&self) -> bool {
        !self.taken && !self.out.is_empty()
    }

    /// What was signed since the last call.
    pub fn output(&mut self) -> &[u8] {
        self.taken = true;
        &self.out
    }

    /// # Errors
    /// The body is not whole.
    pub fn end(&self) -> Result<(), Stop> {
        if self.state == State::Done && self.pending.is_empty() { Ok(()) } else { Err(broken()) }
    }

    /// One line or one chunk; how many bytes of `pending` from `at` on it took.
    fn step(&mut self, at: usize) -> Result<Option<usize>, Stop> {
        let rest = self.pending.get(at..).unwrap_or_default();
        match self.state {
            State::Line => {
                let Some(line) = line(rest)? else { return Ok(None) };
                let size = chunk_size(line)?;
                let used = line.len() + 2;
                // The data must be here before the line can be written: it stays until then.
                if rest.len() < used + size + if size == 0 { 0 } else { 2 } {
                    return Ok(None);
                }
                self.state = State::Data(used);
                Ok(Some(0))
            }
            State::Data(used) => {
                let head = rest.get(..used.saturating_sub(2)).unwrap_or_default();
                let size = chunk_size(head)?;
                let data = used..used + size;
                let end = if size == 0 { 0 } else { 2 };
                if end > 0 && rest.get(data.end..data.end + end) != Some(b"\r\n") {
                    return Err(broken());
                }
                let hash = hex(&Sha256::digest(rest.get(data.clone()).unwrap_or_default()));
                let digits = head.iter().position(|byte| *byte == b';').unwrap_or_default();
                let signature = self.sign("PAYLOAD", &format!("{EMPTY}\n{hash}"));
                let rest = self.pending.get(at..).unwrap_or_default();
                self.out.extend_from_slice(rest.get(..digits).unwrap_or_default());
                self.out.extend_from_slice(b";chunk-signature=");
                self.out.extend_from_slice(signature.as_bytes());
                self.out.extend_from_slice(b"\r\n");
                self.out.extend_from_slice(rest.get(data.start..data.end + end).unwrap_or_default());
                self.state = if size == 0 { State::Trailer } else { State::Line };
                Ok(Some(data.end + end))
            }
            State::Trailer => {
                let Some(line) = line(rest)? else { return Ok(None) };
                let used = line.len() + 2;
                let line = line.to_vec();
                self.trailer_line(&line)?;
                Ok(Some(used))
            }
            State::Done if rest.is_empty() => Ok(None),
            State::Done => Err(broken()),
        }
    }

    fn trailer_line(&mut self, line: &[u8]) -> Result<(), Stop> {
        if line.is_empty() {
            self.state = State::Done;
        } else if let Some(guests) = line.strip_prefix(b"x-amz-trailer-signature:") {
            // SECURITY: ours takes the place of theirs, byte for byte: another length would move the end of the body away from where
            // the head says that it is. Guarded by
            // `chunks_come_out_the_same_in_whatever_pieces_they_come_or_not_at_all`.
            if guests.len() != SIGNATURE_DIGITS || self.trailer_is_signed {
                return Err(broken());
            }
            self.trailer_is_signed = true;
            let hash = hex(&Sha256::digest(&self.trailer));
            let signature = self.sign("TRAILER", &hash);
            self.out.extend_from_slice(b"x-amz-trailer-signature:");
            self.out.extend_from_slice(signature.as_bytes());
        } else if self.trailer_is_signed || line.iter().any(u8::is_ascii_control) {
            // SECURITY: some readers take a bare line feed for the end of a line: theirs would be another trailer than the signed one.
            return Err(broken());
        } else {
            let colon = line.iter().position(|byte| *byte == b':').ok_or_else(broken)?;
            let (name, value) = line.split_at(colon);
            self.trailer.extend_from_slice(&name.to_ascii_lowercase());
            self.trailer.push(b':');
            self.trailer.extend_from_slice(value.get(1..).unwrap_or_default().trim_ascii());
            self.trailer.push(b'\n');
            if self.trailer.len() > SIGNED_CHUNK_LINE_BYTES {
                return Err(broken());
            }
            self.out.extend_from_slice(line);
        }
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn sign(&mut self, what: &str, rest: &str) -> String {
        let text = format!("AWS4-HMAC-SHA256-{what}\n{}\n{}\n{rest}", self.context, self.previous);
        self.previous = hex(&mac(&*self.key, text.as_bytes()));
        self.previous.clone()
    }
}

/// The line at the front, without its CRLF; `None` while it is not whole.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Stop> {
    let within = bytes.get(..bytes.len().min(SIGNED_CHUNK_LINE_BYTES)).unwrap_or_default();
    match within.windows(2).position(|two| two == b"\r\n") {
        Some(end) => Ok(within.get(..end)),
        None if bytes.len() >= SIGNED_CHUNK_LINE_BYTES => Err(broken()),
        None => Ok(None),
    }
}

/// `SIZE;chunk-signature=` and 64 hex digits.
fn chunk_size(line: &[u8]) -> Result<usize, Stop> {
    let text = std::str::from_utf8(line).map_err(|_| broken())?;
    let (digits, signature) = text.split_once(";chunk-signature=").ok_or_else(broken)?;
    let fit = signature.len() == SIGNATURE_DIGITS
        && (1..=16).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let size = usize::from_str_radix(digits, 16).ok().filter(|_| fit).ok_or_else(broken)?;
    if size > SIGNED_CHUNK_BYTES {
        return Err(Stop::malformed("a signed chunk is larger than the limit"));
    }
    Ok(size)
}

fn broken() -> Stop {
    Stop::malformed("the signed chunks of the body are broken")
}
