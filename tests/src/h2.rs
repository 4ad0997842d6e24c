//! HTTP/2 frames by hand, with no validation: what a hostile client sends, and what comes back (RFC 9113, RFC 7541).

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use crate::wire::Wire;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// One connection.
#[derive(Debug)]
pub struct H2 {
    wire: Wire,
    next_stream: u32,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Status, content, and the raw block of trailers where there was one.
    Answer {
        status: u16,
        body: Vec<u8>,
    },
    /// The stream was reset with this code.
    Reset(u32),
    /// The connection was ended with this code.
    GoAway(u32),
    Closed,
}

impl Ended {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answer { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Refused in any of the ways that HTTP/2 has: an error of stream or connection, or one of these statuses.
    pub fn is_refusal(&self, statuses: &[u16]) -> bool {
        self.status().is_none_or(|status| statuses.contains(&status))
    }
}

impl H2 {
    /// Speaks HTTP/2 on a TLS connection that agreed on it.
    pub fn start(mut wire: Wire) -> io::Result<Self> {
        wire.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        wire.set_patience(Duration::from_secs(10));
        let mut connection = Self { wire, next_stream: 1 };
        connection.frame(SETTINGS, 0, 0, &[])?;
        Ok(connection)
    }

    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.raw(&frame(kind, flags, stream, payload))
    }

    /// Raw bytes, frames or not.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes)?;
        self.wire.flush()
    }

    /// Throws away what has come; false when the connection has ended.
    pub fn discard(&mut self) -> bool {
        self.wire.set_patience(Duration::from_millis(1));
        let mut piece = [0; 1 << 14];
        loop {
            match self.wire.read(&mut piece) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => {
                    self.wire.set_patience(Duration::from_secs(10));
                    return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                }
            }
        }
    }

    pub fn new_stream(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        stream
    }

    /// A request with these fields, pseudo or not, in this order, and a body in one DATA frame where there is one.
    pub fn ask(&mut self, fields: &[(&str, &str)], body: Option<&[u8]>) -> Ended {
        let stream = self.new_stream();
        let flags = END_HEADERS | if body.is_none() { END_STREAM } else { 0 };
        if self.frame(HEADERS, flags, stream, &block(fields)).is_err() {
            return Ended::Closed;
        }
        if let Some(body) = body {
            let _ = self.frame(DATA, END_STREAM, stream, body);
        }
        self.outcome(stream)
    }

    /// Reads frames until this stream has ended.
    pub fn outcome(&mut self, stream: u32) -> Ended {
        let (mut status, mut body) = (0, Vec::new());
        loop {
            let Ok((kind, flags, of, payload)) = self.read_frame() else { return Ended::Closed };
            match kind {
                SETTINGS if flags & 1 == 0 => drop(self.frame(SETTINGS, 1, 0, &[])),
                PING if flags & 1 == 0 => drop(self.frame(PING, 1, 0, &payload)),
                GOAWAY => {
                    let last = number(&payload[0..]);
                    let code = number(&payload[4..]);
                    if code != 0 || stream > last {
                        return Ended::GoAway(code);
                    }
                }
                RST_STREAM if of == stream => return Ended::Reset(number(&payload)),
                HEADERS if of == stream && status == 0 => status = read_status(&payload),
                DATA if of == stream => {
                    body.extend_from_slice(&payload);
                    let taken = u32::try_from(payload.len()).unwrap();
                    if taken > 0 {
                        let _ = self.frame(WINDOW_UPDATE, 0, 0, &taken.to_be_bytes());
                        let _ = self.frame(WINDOW_UPDATE, 0, stream, &taken.to_be_bytes());
                    }
                }
                _ => {}
            }
            if of == stream && flags & END_STREAM != 0 && matches!(kind, DATA | HEADERS) {
                return Ended::Answer { status, body };
            }
        }
    }

    pub fn read_frame(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut header = [0; 9];
        self.wire.read_exact(&mut header)?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.wire.read_exact(&mut payload)?;
        Ok((header[3], header[4], number(&header[5..]) & 0x7fff_ffff, payload))
    }
}

/// The bytes of one frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// A header block of literals without indexing and without Huffman coding.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// An integer with a prefix of seven bits (RFC 7541 5.1).
fn push_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        block.push(u8::try_from(length).unwrap());
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 0x80);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}

/// The status at the head of a block: indexed, or a literal with the name `:status` from the static table.
fn read_status(block: &[u8]) -> u16 {
    const STATIC: [(u8, u16); 7] =
        [(0x88, 200), (0x89, 204), (0x8a, 206), (0x8b, 304), (0x8c, 400), (0x8d, 404), (0x8e, 500)];
    // Changes of the dynamic table's size may stand before it.
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20).unwrap_or(0);
    let block = &block[start..];
    let Some(first) = block.first() else { return 0 };
    if let Some((_, status)) = STATIC.iter().find(|(byte, _)| byte == first) {
        return *status;
    }
    let named =
        (0x48..=0x4e).contains(first) || (0x08..=0x0e).contains(first) || (0x18..=0x1e).contains(first);
    match block.get(1) {
        Some(length) if named && length & 0x80 == 0 => {
            let digits = &block[2..2 + usize::from(*length)];
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
        }
        Some(length) if named => huffman_digits(&block[2..2 + usize::from(length & 0x7f)]),
        // A status that was used before: in the dynamic table, which we do not keep.
        _ => 1,
    }
}

/// Digits in HPACK's Huffman code: 0-2 have five bits, 3-9 six.
fn huffman_digits(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let take = |from: usize, count: usize| {
        bits.get(from..from + count)
            .map(|bits| bits.iter().fold(0, |value, bit| value << 1 | u16::from(*bit)))
    };
    let (mut at, mut number) = (0, 0);
    for _ in 0..3 {
        match (take(at, 5), take(at, 6)) {
            (Some(digit @ 0..=2), _) => {
                number = number * 10 + digit;
                at += 5;
            }
            (_, Some(code @ 0b01_1001..=0b01_1111)) => {
                number = number * 10 + (code - 0b01_1001 + 3);
                at += 6;
            }
            _ => return 0,
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_statuses_in_every_form() {
        assert_eq!(read_status(&[0x88]), 200);
        assert_eq!(read_status(&[0x48, 3, b'4', b'2', b'1']), 421);
        // 302 is `6402` in RFC 7541 C.6.1; 307 is `640e` in C.6.2.
        assert_eq!(read_status(&[0x48, 0x82, 0x64, 0x02]), 302);
        assert_eq!(read_status(&[0x48, 0x83, 0x64, 0x0e, 0xff]), 307);
        // 403: 011010 00000 011001 and padding of ones.
        assert_eq!(read_status(&[0x48, 0x83, 0b0110_1000, 0b0000_1100, 0b1111_1111]), 403);
    }
}
