//! Messages between sandboxd and a worker: a length (4 bytes), a kind (1), the run's number (8), then fields.
//!
//! Little-endian, one machine. The worker is not trusted: what it sends is bounded before it is kept, and an answer that
//! carries another run's number than the one that was asked ends the worker.

use super::limits::MAX_FRAME_BYTES;

/// Number of a worker's first run; the next has the next number.
pub(super) const FIRST_RUN: u64 = 1;

/// One message. `run` is the number that the answer must repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) run: u64,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// Worker: locked down, may be measured. What it found out about itself, `name=value` lines.
    Ready { report: String },
    /// Worker: could not lock itself down, and ends.
    Failed { step: String },
    /// To the worker: run this. The socket to the gate comes with it where there is one.
    Run(RunMessage),
    /// Worker: output of stream 1 or 2.
    Output { stream: u8, bytes: Vec<u8> },
    /// Worker: the run is over, its instance is gone.
    Done(Done),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunMessage {
    pub(super) timeout_ms: u64,
    /// Bytes kept per stream.
    pub(super) output_limit: u64,
    pub(super) code: String,
    /// JSON for the guest's `host` object; empty without grants.
    pub(super) surface: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) exit_code: i32,
    pub(super) timed_out: bool,
    /// More output than was sent.
    pub(super) stdout_truncated: bool,
    pub(super) stderr_truncated: bool,
    /// For people; empty when there is nothing to say.
    pub(super) detail: String,
}

/// Why bytes are not a message. The connection is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a message of {0} bytes is over the limit")]
    TooLarge(usize),
    #[error("a message does not decode")]
    Undecodable,
}

impl Frame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        let kind = match &self.body {
            Body::Ready { .. } => 1,
            Body::Failed { .. } => 2,
            Body::Run(_) => 3,
            Body::Output { .. } => 4,
            Body::Done(_) => 5,
        };
        out.push(kind);
        out.extend_from_slice(&self.run.to_le_bytes());
        match &self.body {
            Body::Ready { report: text } | Body::Failed { step: text } => {
                out.extend_from_slice(text.as_bytes());
            }
            Body::Run(run) => {
                out.extend_from_slice(&run.timeout_ms.to_le_bytes());
                out.extend_from_slice(&run.output_limit.to_le_bytes());
                out.extend_from_slice(&(run.code.len() as u64).to_le_bytes());
                out.extend_from_slice(run.code.as_bytes());
                out.extend_from_slice(run.surface.as_bytes());
            }
            Body::Output { stream, bytes } => {
                out.push(*stream);
                out.extend_from_slice(bytes);
            }
            Body::Done(done) => {
                out.extend_from_slice(&done.exit_code.to_le_bytes());
                let flags = [done.timed_out, done.stdout_truncated, done.stderr_truncated];
                out.extend(flags.map(u8::from));
                out.extend_from_slice(done.detail.as_bytes());
            }
        }
        let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
        if let Some(place) = out.first_chunk_mut::<4>() {
            *place = length.to_le_bytes();
        }
        out
    }

    /// Takes one whole message from the front of `buffer`, or says that more bytes are needed.
    pub(super) fn decode(buffer: &mut Vec<u8>) -> Result<Option<Self>, Malformed> {
        let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(Malformed::TooLarge(length));
        }
        let Some(message) = buffer.get(4..4 + length) else { return Ok(None) };
        let frame = Self::parse(message).ok_or(Malformed::Undecodable)?;
        buffer.drain(..4 + length);
        Ok(Some(frame))
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        let (run, rest) = rest.split_first_chunk::<8>()?;
        let body = match kind {
            1 => Body::Ready { report: text(rest)? },
            2 => Body::Failed { step: text(rest)? },
            3 => {
                let (timeout_ms, rest) = rest.split_first_chunk::<8>()?;
                let (output_limit, rest) = rest.split_first_chunk::<8>()?;
                let (code_length, rest) = rest.split_first_chunk::<8>()?;
                let (code, surface) =
                    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*code_length)).ok()?)?;
                Body::Run(RunMessage {
                    timeout_ms: u64::from_le_bytes(*timeout_ms),
                    output_limit: u64::from_le_bytes(*output_limit),
                    code: text(code)?,
                    surface: text(surface)?,
                })
            }
            4 => {
                let (stream, bytes) = rest.split_first()?;
                if !matches!(stream, 1 | 2) {
                    return None;
                }
                Body::Output { stream: *stream, bytes: bytes.to_vec() }
            }
            5 => {
                let (exit_code, rest) = rest.split_first_chunk::<4>()?;
                let ([timed_out, stdout, stderr], rest) = rest.split_first_chunk::<3>()?;
                Body::Done(Done {
                    exit_code: i32::from_le_bytes(*exit_code),
                    timed_out: *timed_out == 1,
                    stdout_truncated: *stdout == 1,
                    stderr_truncated: *stderr == 1,
                    detail: text(rest)?,
                })
            }
            _ => return None,
        };
        Some(Self { run: u64::from_le_bytes(*run), body })
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> Vec<Frame> {
        let done = Done {
            exit_code: -3,
            timed_out: true,
            stdout_truncated: false,
            stderr_truncated: true,
            detail: "x".into(),
        };
        let run = RunMessage { timeout_ms: 7, output_limit: 9, code: "é\0".into(), surface: "{}".into() };
        [
            Body::Ready { report: "a=b".into() },
            Body::Failed { step: "s".into() },
            Body::Run(run),
            Body::Output { stream: 2, bytes: vec![0, 255] },
            Body::Done(done),
        ]
        .map(|body| Frame { run: 77, body })
        .into()
    }

    #[test]
    fn every_kind_comes_back_as_it_was_byte_by_byte() {
        for frame in every_kind() {
            let mut buffer = Vec::new();
            let bytes = frame.encode();
            for (at, byte) in bytes.iter().enumerate() {
                assert_eq!(Frame::decode(&mut buffer), Ok(None), "after {at} bytes");
                buffer.push(*byte);
            }
            assert_eq!(Frame::decode(&mut buffer), Ok(Some(frame)));
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn refuses_what_is_too_large_before_it_is_there() {
        let mut buffer = u32::MAX.to_le_bytes().to_vec();
        assert_eq!(Frame::decode(&mut buffer), Err(Malformed::TooLarge(u32::MAX as usize)));
    }

    #[test]
    fn refuses_unknown_kinds_streams_and_cut_fields() {
        for message in [vec![9; 9], vec![4, 0, 0, 0, 0, 0, 0, 0, 0, 3], vec![5; 10], vec![], vec![3; 20]] {
            let mut buffer = u32::try_from(message.len()).unwrap().to_le_bytes().to_vec();
            buffer.extend(message);
            assert_eq!(Frame::decode(&mut buffer), Err(Malformed::Undecodable));
        }
    }
}
