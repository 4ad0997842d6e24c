//! The chunked transfer coding (RFC 9112 7.1), read strictly and written anew.
//!
//! Extensions are read within a budget and never forwarded. Bare LF or CR, spaces around a size, more than 16
//! digits, an unclosed quote: malformed (ATTACKS B12, B14, B16, B17).

use crate::limits::{MAX_CHUNK_BYTES, MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES};

/// A decoder between two reads. It keeps no bytes: what it has not consumed is given to it again.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    extension_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    Done,
}

/// What the first bytes of the input are.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Not enough input to say.
    More,
    /// Skip this many bytes of framing.
    Skip(usize),
    /// This many bytes of body.
    Data(usize),
    /// The trailer section of this many bytes, its empty line included: the body is complete.
    End(usize),
}

/// The body breaks the coding: nothing after this point can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl Default for Decoder {
    fn default() -> Self {
        Self { state: State::Size, extension_bytes: 0 }
    }
}

impl Decoder {
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Looks at `input`; the caller consumes as many bytes as the step says before it asks again.
    ///
    /// # Errors
    /// The coding is broken or a limit is passed.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        match self.state {
            State::Size => self.size(input),
            State::Data(left) => {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                if here == 0 {
                    return Ok(Step::More);
                }
                let rest = left - here as u64;
                self.state = if rest == 0 { State::DataEnd } else { State::Data(rest) };
                Ok(Step::Data(here))
            }
            State::DataEnd => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Step::Skip(2))
                }
                [] | [b'\r'] => Ok(Step::More),
                _ => Err(Malformed("chunk data is not followed by CRLF")),
            },
            State::Trailers => self.trailers(input),
            State::Done => Ok(Step::More),
        }
    }

    fn size(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        let Some(line) = line(input, MAX_CHUNK_LINE_BYTES).map_err(Malformed)? else { return Ok(Step::More) };
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, extension) = line.split_at(digits);
        if digits.is_empty() || digits.len() > 16 {
            return Err(Malformed("chunk size is not 1 to 16 hex digits"));
        }
        if !extension.is_empty() {
            check_extension(extension)?;
            self.extension_bytes += extension.len();
            if self.extension_bytes > MAX_CHUNK_EXTENSION_BYTES {
                return Err(Malformed("chunk extensions are over the limit"));
            }
        }
        let size = digits.iter().fold(0_u64, |size, digit| {
            size << 4 | u64::from(char::from(*digit).to_digit(16).unwrap_or_default())
        });
        if size > MAX_CHUNK_BYTES {
            return Err(Malformed("chunk size is over the limit"));
        }
        self.state = if size == 0 { State::Trailers } else { State::Data(size) };
        Ok(Step::Skip(line.len() + 2))
    }

    fn trailers(&mut self, input: &[u8]) -> Result<Step, Malformed> {
        let mut length = 0;
        loop {
            let rest = input.get(length..).unwrap_or_default();
            let Some(line) = line(rest, MAX_TRAILER_BYTES - length).map_err(Malformed)? else {
                return Ok(Step::More);
            };
            length += line.len() + 2;
            if line.is_empty() {
                self.state = State::Done;
                return Ok(Step::End(length));
            }
            if length >= MAX_TRAILER_BYTES {
                return Err(Malformed("the trailer section is over the limit"));
            }
        }
    }
}

/// The first line without its CRLF; `None` when its end is not there yet.
fn line(input: &[u8], limit: usize) -> Result<Option<&[u8]>, &'static str> {
    let end = memchr::memchr2(b'\r', b'\n', input);
    match end {
        Some(at) if at > limit => Err("a line is over the limit"),
        Some(at) => match input.get(at..) {
            Some([b'\r', b'\n', ..]) => Ok(input.get(..at)),
            Some([b'\r']) => Ok(None),
            _ => Err("a line does not end in CRLF"),
        },
        None if input.len() > limit => Err("a line is over the limit"),
        None => Ok(None),
    }
}

/// `;name=value…` in printable characters, quotes closed, no escapes in quotes.
fn check_extension(extension: &[u8]) -> Result<(), Malformed> {
    let printable = extension.iter().all(|byte| (0x21..0x7f).contains(byte) || *byte == b' ');
    let quotes = memchr::memchr_iter(b'"', extension).count();
    let well_formed = extension.first() == Some(&b';')
        && extension.len() > 1
        && printable
        && quotes.is_multiple_of(2)
        && !extension.contains(&b'\\');
    if well_formed { Ok(()) } else { Err(Malformed("a chunk extension is malformed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(mut input: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let mut decoder = Decoder::default();
        let mut body = Vec::new();
        loop {
            match decoder.step(input)? {
                Step::More => return Ok(None),
                Step::Skip(count) => input = &input[count..],
                Step::Data(count) => {
                    body.extend_from_slice(&input[..count]);
                    input = &input[count..];
                }
                Step::End(count) => {
                    assert_eq!(count, input.len());
                    return Ok(Some(body));
                }
            }
        }
    }

    #[test]
    fn reads_chunks_extensions_and_trailers() {
        assert_eq!(decode(b"5\r\nhello\r\n0\r\n\r\n"), Ok(Some(b"hello".to_vec())));
        assert_eq!(decode(b"5;a=b;c=\"d\"\r\nhello\r\n0\r\nX: y\r\n\r\n"), Ok(Some(b"hello".to_vec())));
        assert_eq!(decode(b"A\r\n0123456789\r\n000\r\n\r\n"), Ok(Some(b"0123456789".to_vec())));
        assert_eq!(decode(b"5\r\nhel"), Ok(None));
    }

    #[test]
    fn b12_b14_refuses_bare_line_ends_and_quotes_that_span_lines() {
        for body in [
            &b"5;\nhello\r\n0\r\n\r\n"[..],
            b"2;\nxx\r\n50\r\n..",
            b"5\nhello\n0\n\n",
            b"5\rhello\r\n0\r\n\r\n",
            b"5;a=\"\r\n0\r\n\r\nGET /x\"",
            b"5;\r\nhello\r\n0\r\n\r\n",
        ] {
            assert!(decode(body).is_err(), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn b16_refuses_every_other_spelling_of_a_size() {
        for size in
            ["0x5", "+5", "-0", "5 ", " 5", "0_2e", "", "5\t", "11111111111111111", &"0".repeat(65536)]
        {
            let body = format!("{size}\r\nhello\r\n0\r\n\r\n");
            assert!(decode(body.as_bytes()).is_err(), "{size:?}");
        }
    }

    #[test]
    fn b17_refuses_too_many_extensions() {
        let body = format!("1;{}\r\nx\r\n", "a".repeat(100)).repeat(50);
        assert!(decode(body.as_bytes()).is_err());
        assert!(decode(format!("1;{}\r\nx\r\n", "a".repeat(70_000)).as_bytes()).is_err());
    }

    #[test]
    fn refuses_data_that_runs_past_its_size() {
        assert!(decode(b"5\r\nhelloo\r\n0\r\n\r\n").is_err());
    }
}
