//! Request targets, normalised once. What is matched is what is sent.
//!
//! Bytes of a request line come in; out comes a [`Target`] with the bytes that go upstream and, apart, the decoded
//! segments that rules are compared with. It never guesses: what two readers could read differently is an error.

use smallvec::SmallVec;

use crate::limits::TARGET_MAX_BYTES;

/// The path and query of a request in canonical form. Percent escapes of unreserved characters are decoded
/// (RFC 3986 6.2.2.2); other escapes stay as they came, byte for byte, so that `%2F` is data inside one
/// segment for the match and on the wire. Anything with two readings does not become a `Target`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    wire: Box<str>,
    path_len: usize,
    /// The path decoded once, where escapes remain in it; the separators stand at `ends` only.
    decoded: Option<Box<[u8]>>,
    /// End of each segment in the match text; the next one starts one byte later.
    ends: SmallVec<[u16; 12]>,
    trailing_slash: bool,
    escaped_slash: bool,
}

/// Why a target has no canonical form; each is answered 400 before any matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TargetError {
    #[error("the target does not start with `/`")]
    NotOriginForm,
    #[error("the target is longer than the limit")]
    TooLong,
    #[error("the path has a dot segment")]
    DotSegment,
    #[error("the path has an empty segment")]
    EmptySegment,
    #[error("the path has a `;`")]
    PathParameter,
    #[error("the target has a backslash")]
    Backslash,
    #[error("the target has a control character")]
    Control,
    #[error("the target has a fragment")]
    Fragment,
    #[error("the target has a byte that must be percent-encoded")]
    RawByte,
    #[error("the target has a malformed percent escape")]
    BadEscape,
    #[error("the target is not valid UTF-8 once decoded")]
    BadUtf8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Query,
}

impl Target {
    /// Parses an origin-form target (`/path?query`) as received.
    pub fn parse(raw: &[u8]) -> Result<Self, TargetError> {
        if raw.len() > TARGET_MAX_BYTES {
            return Err(TargetError::TooLong);
        }
        if raw.first() != Some(&b'/') {
            return Err(TargetError::NotOriginForm);
        }
        let (raw_path, raw_query) = match raw.iter().position(|byte| *byte == b'?') {
            Some(at) => {
                let (path, rest) = raw.split_at(at);
                (path, rest.get(1..))
            }
            None => (raw, None),
        };
        let mut wire = String::with_capacity(raw.len());
        let path = Scanned::scan(raw_path, Part::Path, &mut wire)?;
        let path_len = wire.len();
        if let Some(query) = raw_query {
            wire.push('?');
            Scanned::scan(query, Part::Query, &mut wire)?;
        }
        let segments = Segments::split(&path.text, &path.separators)?;
        Ok(Self {
            wire: wire.into_boxed_str(),
            path_len,
            decoded: path.escapes.then(|| path.text.into_boxed_slice()),
            ends: segments.ends,
            trailing_slash: segments.trailing_slash,
            escaped_slash: path.escaped_slash,
        })
    }

    /// The canonical bytes that go upstream: path and, where there is one, `?` and query.
    pub fn wire(&self) -> &str {
        &self.wire
    }

    pub fn path(&self) -> &str {
        self.wire.get(..self.path_len).unwrap_or_default()
    }

    /// The query without its `?`; `None` when there is no `?`.
    pub fn query(&self) -> Option<&str> {
        self.wire.get(self.path_len + 1..)
    }

    /// The path as segments for matching, each decoded once.
    pub(crate) fn view(&self) -> PathView<'_> {
        PathView { text: self.match_text(), ends: &self.ends, trailing_slash: self.trailing_slash }
    }

    /// The second reading that a careless upstream has of a path with `%2F`: as separators. Only deny rules look at it.
    pub(crate) fn split_at_escaped_slashes(&self) -> Option<SplitView<'_>> {
        if !self.escaped_slash {
            return None;
        }
        let text = self.match_text();
        let slashes = text.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        let mut ends: SmallVec<[u16; 32]> = slashes.map(|(at, _)| offset(at)).collect();
        let trailing_slash = text.last() == Some(&b'/');
        if !trailing_slash {
            ends.push(offset(text.len()));
        }
        Some(SplitView { text, ends, trailing_slash })
    }

    fn match_text(&self) -> &[u8] {
        match &self.decoded {
            Some(text) => text,
            None => self.path().as_bytes(),
        }
    }
}

/// A path as matching sees it: `len` segments, and whether a `/` follows the last one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathView<'a> {
    text: &'a [u8],
    ends: &'a [u16],
    pub(crate) trailing_slash: bool,
}

impl<'a> PathView<'a> {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn segment(&self, index: usize) -> Option<&'a [u8]> {
        let end = usize::from(*self.ends.get(index)?);
        let start = match index.checked_sub(1) {
            Some(before) => usize::from(*self.ends.get(before)?) + 1,
            None => 1,
        };
        self.text.get(start..end)
    }
}

/// Owner of the segment borders of the second reading.
#[derive(Debug)]
pub(crate) struct SplitView<'a> {
    text: &'a [u8],
    ends: SmallVec<[u16; 32]>,
    trailing_slash: bool,
}

impl SplitView<'_> {
    pub(crate) fn view(&self) -> PathView<'_> {
        PathView { text: self.text, ends: &self.ends, trailing_slash: self.trailing_slash }
    }
}

/// One part of the target after the single pass over its bytes.
struct Scanned {
    /// Decoded once.
    text: Vec<u8>,
    /// Where `text` has a separator (a raw `/`, never a decoded one).
    separators: SmallVec<[u16; 16]>,
    escapes: bool,
    escaped_slash: bool,
}

impl Scanned {
    fn scan(raw: &[u8], part: Part, wire: &mut String) -> Result<Self, TargetError> {
        let mut scanned = Self {
            text: Vec::with_capacity(raw.len()),
            separators: SmallVec::new(),
            escapes: false,
            escaped_slash: false,
        };
        let mut rest = raw;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte == b'%' {
                let (high, low) = match after {
                    [high, low, ..] => (*high, *low),
                    _ => return Err(TargetError::BadEscape),
                };
                rest = after.get(2..).unwrap_or_default();
                scanned.escape(high, low, part, wire)?;
            } else {
                check_raw(byte, part)?;
                if byte == b'/' {
                    scanned.separators.push(offset(scanned.text.len()));
                }
                scanned.text.push(byte);
                wire.push(char::from(byte));
            }
        }
        // SECURITY: overlong and broken sequences are read differently by different decoders. Guarded by ATTACKS A08.
        if scanned.escapes && std::str::from_utf8(&scanned.text).is_err() {
            return Err(TargetError::BadUtf8);
        }
        Ok(scanned)
    }

    fn escape(&mut self, high: u8, low: u8, part: Part, wire: &mut String) -> Result<(), TargetError> {
        let byte =
            hex_value(high).zip(hex_value(low)).map(|(h, l)| h * 16 + l).ok_or(TargetError::BadEscape)?;
        self.text.push(byte);
        if is_unreserved(byte) {
            wire.push(char::from(byte));
            return Ok(());
        }
        match byte {
            0x00..=0x1f | 0x7f => return Err(TargetError::Control),
            b'\\' => return Err(TargetError::Backslash),
            b';' if part == Part::Path => return Err(TargetError::PathParameter),
            b'/' => self.escaped_slash = true,
            _ => {}
        }
        self.escapes = true;
        wire.push('%');
        wire.push(char::from(high));
        wire.push(char::from(low));
        Ok(())
    }
}

struct Segments {
    ends: SmallVec<[u16; 12]>,
    trailing_slash: bool,
}

impl Segments {
    /// `separators` holds at least the leading `/`.
    fn split(text: &[u8], separators: &[u16]) -> Result<Self, TargetError> {
        let mut ends: SmallVec<[u16; 12]> = separators.iter().skip(1).copied().collect();
        let trailing_slash = separators.last().map(|at| usize::from(*at) + 1) == Some(text.len());
        if !trailing_slash {
            ends.push(offset(text.len()));
        }
        let view = PathView { text, ends: &ends, trailing_slash };
        for index in 0..view.len() {
            let segment = view.segment(index).unwrap_or_default();
            if segment.is_empty() {
                return Err(TargetError::EmptySegment);
            }
            // SECURITY: `a%2F..%2Fb` climbs in an upstream that decodes before it resolves. Guarded by ATTACKS A02, A04.
            if segment.split(|byte| *byte == b'/').any(|piece| piece == b"." || piece == b"..") {
                return Err(TargetError::DotSegment);
            }
        }
        Ok(Self { ends, trailing_slash })
    }
}

/// Raw bytes: what RFC 3986 3.3 and 3.4 allow, and what common clients (WHATWG URL, requests) leave unescaped although
/// RFC 3986 does not list it; those have one reading only.
fn check_raw(byte: u8, part: Part) -> Result<(), TargetError> {
    match byte {
        0x00..=0x1f | 0x7f => Err(TargetError::Control),
        b'\\' => Err(TargetError::Backslash),
        b'#' => Err(TargetError::Fragment),
        b';' if part == Part::Path => Err(TargetError::PathParameter),
        b'/' | b':' | b'@' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => {
            Ok(())
        }
        b'[' | b']' | b'|' => Ok(()),
        b'?' | b'{' | b'}' | b'^' | b'`' if part == Part::Query => Ok(()),
        _ if is_unreserved(byte) => Ok(()),
        _ => Err(TargetError::RawByte),
    }
}

/// RFC 3986 2.3.
pub(crate) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

pub(crate) const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Offsets fit: a target has at most `TARGET_MAX_BYTES`, and decoding never lengthens it.
fn offset(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

const _: () = assert!(TARGET_MAX_BYTES < u16::MAX as usize);

#[cfg(test)]
mod tests;
