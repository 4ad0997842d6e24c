//! Reads one HTTP/1.1 response, strictly and within bounds. Pure: bytes in, a response out.
//!
//! Two lengths, an unknown transfer coding, a bad chunk or an early end is an error, never a guess.

use super::super::limits::{MAX_RESPONSE_BODY_BYTES, MAX_RESPONSE_FIELDS, MAX_RESPONSE_HEAD_BYTES};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("the response head is larger than {MAX_RESPONSE_HEAD_BYTES} bytes")]
    HeadTooLarge,
    #[error("the response has more than {MAX_RESPONSE_FIELDS} header fields")]
    TooManyFields,
    #[error("the response body is larger than {MAX_RESPONSE_BODY_BYTES} bytes")]
    BodyTooLarge,
    #[error("the response is not valid HTTP")]
    Invalid,
    #[error("the connection ended before the response was whole")]
    Cut,
}

/// Longest line that gives the size of a chunk, with extensions, in bytes.
const MAX_CHUNK_LINE_BYTES: usize = 1024;

#[derive(Debug)]
pub(super) struct Reader {
    is_head: bool,
    buffer: Vec<u8>,
    /// Bytes of the buffer in which the end of a head was looked for: a head that dribbles in is parsed once.
    scanned: usize,
    status: u16,
    reason: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length(usize),
    UntilEnd,
    ChunkLine,
    ChunkData(usize),
    ChunkEnd,
    Trailer(usize),
    Whole,
}

impl Reader {
    pub(super) fn new(is_head: bool) -> Self {
        let (buffer, fields, body) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            is_head,
            buffer,
            scanned: 0,
            status: 0,
            reason: String::new(),
            fields,
            body,
            state: State::Head,
        }
    }

    /// Takes bytes. True when the response is whole; what comes after it is not looked at.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<bool, ResponseError> {
        self.buffer.extend_from_slice(bytes);
        while self.step()? {}
        Ok(self.state == State::Whole)
    }

    /// The stream has ended.
    pub(super) fn end(&mut self) -> Result<bool, ResponseError> {
        if self.state == State::UntilEnd {
            self.state = State::Whole;
        }
        if self.state == State::Whole { Ok(true) } else { Err(ResponseError::Cut) }
    }

    /// The whole response: JSON of the head, and the body.
    pub(super) fn take(&mut self) -> (String, Vec<u8>) {
        let head =
            serde_json::json!({ "status": self.status, "statusText": self.reason, "headers": self.fields });
        (head.to_string(), std::mem::take(&mut self.body))
    }

    /// Does one thing. False when more bytes are needed or nothing is left to do.
    fn step(&mut self) -> Result<bool, ResponseError> {
        match self.state {
            State::Head => self.read_head(),
            State::Length(0) => self.become_state(State::Whole),
            State::Length(left) => {
                let count = self.move_to_body(left)?;
                self.state = State::Length(left - count);
                Ok(count > 0)
            }
            State::UntilEnd => Ok(self.move_to_body(usize::MAX)? > 0),
            State::ChunkLine => self.read_chunk_line(),
            State::ChunkData(0) => self.become_state(State::ChunkEnd),
            State::ChunkData(left) => {
                let count = self.move_to_body(left)?;
                self.state = State::ChunkData(left - count);
                Ok(count > 0)
            }
            State::ChunkEnd => match self.buffer.first_chunk::<2>() {
                None => Ok(false),
                Some(b"\r\n") => {
                    self.buffer.drain(..2);
                    self.become_state(State::ChunkLine)
                }
                Some(_) => Err(ResponseError::Invalid),
            },
            State::Trailer(seen) => {
                let Some(line) = self.take_line(MAX_RESPONSE_HEAD_BYTES - seen)? else { return Ok(false) };
                let next = if line.is_empty() { State::Whole } else { State::Trailer(seen + line.len() + 2) };
                self.become_state(next)
            }
            State::Whole => Ok(false),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the last expression of the steps above")]
    fn become_state(&mut self, state: State) -> Result<bool, ResponseError> {
        self.state = state;
        Ok(true)
    }

    fn move_to_body(&mut self, most: usize) -> Result<usize, ResponseError> {
        let count = self.buffer.len().min(most);
        if self.body.len() + count > MAX_RESPONSE_BODY_BYTES {
            return Err(ResponseError::BodyTooLarge);
        }
        self.body.extend(self.buffer.drain(..count));
        Ok(count)
    }

    /// A line without its CRLF.
    fn take_line(&mut self, most: usize) -> Result<Option<Vec<u8>>, ResponseError> {
        match self.buffer.windows(2).position(|pair| pair == b"\r\n") {
            Some(at) if at <= most => {
                let line = self.buffer.drain(..at + 2).take(at).collect();
                Ok(Some(line))
            }
            Some(_) => Err(ResponseError::Invalid),
            None if self.buffer.len() > most + 1 => Err(ResponseError::Invalid),
            None => Ok(None),
        }
    }

    fn read_chunk_line(&mut self) -> Result<bool, ResponseError> {
        let Some(line) = self.take_line(MAX_CHUNK_LINE_BYTES)? else { return Ok(false) };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = chunk_size(digits).ok_or(ResponseError::Invalid)?;
        if size > MAX_RESPONSE_BODY_BYTES {
            return Err(ResponseError::BodyTooLarge);
        }
        self.become_state(if size == 0 { State::Trailer(0) } else { State::ChunkData(size) })
    }

    fn read_head(&mut self) -> Result<bool, ResponseError> {
        let unseen = self.buffer.get(self.scanned.saturating_sub(2)..).unwrap_or_default();
        // httparse takes lines that end in LF alone; so an empty line is looked for in both forms.
        let ends = unseen.windows(2).any(|pair| pair == b"\n\n")
            || unseen.windows(3).any(|three| three == b"\n\r\n");
        self.scanned = self.buffer.len();
        if !ends && self.buffer.len() <= MAX_RESPONSE_HEAD_BYTES {
            return Ok(false);
        }
        self.scanned = 0;
        let mut fields = [httparse::EMPTY_HEADER; MAX_RESPONSE_FIELDS];
        let mut head = httparse::Response::new(&mut fields);
        let length = match head.parse(&self.buffer) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.buffer.len() > MAX_RESPONSE_HEAD_BYTES => {
                return Err(ResponseError::HeadTooLarge);
            }
            Ok(httparse::Status::Partial) => return Ok(false),
            Err(httparse::Error::TooManyHeaders) => return Err(ResponseError::TooManyFields),
            Err(_) => return Err(ResponseError::Invalid),
        };
        if length > MAX_RESPONSE_HEAD_BYTES {
            return Err(ResponseError::HeadTooLarge);
        }
        let status = head.code.ok_or(ResponseError::Invalid)?;
        if (100..200).contains(&status) {
            // 101 would end HTTP on this stream; nothing here asked for it.
            if status == 101 {
                return Err(ResponseError::Invalid);
            }
            self.buffer.drain(..length);
            return Ok(true);
        }
        let body = body_form(head.headers)?;
        self.status = status;
        self.reason = head.reason.unwrap_or_default().to_owned();
        self.fields =
            head.headers.iter().map(|field| (field.name.to_ascii_lowercase(), latin1(field.value))).collect();
        self.buffer.drain(..length);
        let has_none = self.is_head || matches!(status, 204 | 304);
        if let State::Length(length) = body
            && length > MAX_RESPONSE_BODY_BYTES
            && !has_none
        {
            return Err(ResponseError::BodyTooLarge);
        }
        self.become_state(if has_none { State::Whole } else { body })
    }
}

/// How the body is framed (RFC 9112 section 6.3), with everything doubtful refused.
fn body_form(fields: &[httparse::Header<'_>]) -> Result<State, ResponseError> {
    let named = |name: &str| {
        fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
            .collect::<Vec<_>>()
    };
    let (codings, lengths) = (named("transfer-encoding"), named("content-length"));
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Ok(State::UntilEnd),
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => Ok(State::ChunkLine),
        ([], [length]) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            let length = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
            length.map(State::Length).ok_or(ResponseError::Invalid)
        }
        _ => Err(ResponseError::Invalid),
    }
}

fn chunk_size(digits: &[u8]) -> Option<usize> {
    let good = !digits.is_empty() && digits.len() <= 8 && digits.iter().all(u8::is_ascii_hexdigit);
    good.then(|| usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten()
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body, read in pieces of every size.
    fn read(text: &str) -> Result<String, ResponseError> {
        read_as(text, false)
    }

    fn read_as(text: &str, is_head: bool) -> Result<String, ResponseError> {
        let mut results = Vec::new();
        for size in [1, 2, 3, 7, text.len().max(1)] {
            let mut reader = Reader::new(is_head);
            let mut result = Ok(false);
            for piece in text.as_bytes().chunks(size) {
                result = reader.push(piece);
                if !matches!(result, Ok(false)) {
                    break;
                }
            }
            if result == Ok(false) {
                result = reader.end();
            }
            results.push(result.map(|_| String::from_utf8(reader.take().1).unwrap()));
        }
        results.dedup();
        assert_eq!(results.len(), 1, "the same whatever the pieces: {results:?}");
        results.remove(0)
    }

    #[test]
    fn reads_every_form_of_body_that_has_one_meaning() {
        for (text, body) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "hi"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi and more", "hi"),
            ("HTTP/1.1 200 OK\r\n\r\nall of it", "all of it"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nA;x=y\r\n0123456789\r\n0\r\nt: r\r\n\r\n",
                "hi0123456789",
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", ""),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", ""),
            ("HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", "x"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(body), "{text:?}");
        }
        assert_eq!(read_as("HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n", true).as_deref(), Ok(""));
    }

    #[test]
    fn refuses_every_body_with_two_meanings_or_none() {
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi!",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nhi",
            "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nhi",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
            "not http at all\r\n\r\n",
        ] {
            assert_eq!(read(text), Err(ResponseError::Invalid), "{text:?}");
        }
    }

    #[test]
    fn says_that_a_response_was_cut() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\ncont",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n",
        ] {
            assert_eq!(read(text), Err(ResponseError::Cut), "{text:?}");
        }
    }

    #[test]
    fn keeps_every_bound() {
        let many = "a: b\r\n".repeat(MAX_RESPONSE_FIELDS + 1);
        assert_eq!(read(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")), Err(ResponseError::TooManyFields));
        let long = "x".repeat(MAX_RESPONSE_HEAD_BYTES);
        assert_eq!(read(&format!("HTTP/1.1 200 OK\r\na: {long}\r\n\r\n")), Err(ResponseError::HeadTooLarge));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", MAX_RESPONSE_BODY_BYTES + 1);
        assert_eq!(read(&head), Err(ResponseError::BodyTooLarge));
        let chunk = format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
            MAX_RESPONSE_BODY_BYTES + 1
        );
        assert_eq!(read(&chunk), Err(ResponseError::BodyTooLarge));
        let mut reader = Reader::new(false);
        reader.push(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let result =
            (0..=MAX_RESPONSE_BODY_BYTES / 65536).find_map(|_| reader.push(&vec![b'x'; 65536]).err());
        assert_eq!(result, Some(ResponseError::BodyTooLarge));
    }

    #[test]
    fn hands_on_status_and_fields() {
        let mut reader = Reader::new(false);
        assert_eq!(
            reader.push(b"HTTP/1.1 403 Forbidden\r\nX-Y: \xe4\r\ncontent-length: 0\r\n\r\n"),
            Ok(true)
        );
        let head: serde_json::Value = serde_json::from_str(&reader.take().0).unwrap();
        let wanted = serde_json::json!({ "status": 403, "statusText": "Forbidden", "headers": [["x-y", "ä"], ["content-length", "0"]] });
        assert_eq!(head, wanted);
    }
}
