//! Websocket frames from an upstream that got a credential: the secret is masked inside each frame's payload.
//!
//! In: the bytes of the upstream's direction. Out: the same bytes, masked in place, and how many of them may go on. A frame
//! that is complete goes on whole; a secret that an upstream cuts into two frames is not found.

use smallvec::SmallVec;

use crate::credential::{Masked, Scrubber};

/// Follows the frames of one direction (RFC 6455 5.2).
#[derive(Debug)]
pub struct FrameScrubber<'a> {
    scrubber: &'a Scrubber,
    header: SmallVec<[u8; 14]>,
    /// Payload bytes of the current frame that have not gone on yet.
    left: u64,
    pub found: bool,
}

impl<'a> FrameScrubber<'a> {
    pub fn new(scrubber: &'a Scrubber) -> Self {
        Self { scrubber, header: SmallVec::new(), left: 0, found: false }
    }

    /// Masks `bytes` and says how many of them may go on. The rest must come first the next time.
    pub fn mask(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.left == 0 {
                let Some(byte) = bytes.get(at) else { break };
                self.header.push(*byte);
                at += 1;
                if let Some(length) = payload_length(&self.header) {
                    self.left = length;
                    self.header.clear();
                }
                continue;
            }
            let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
            let complete = here as u64 == self.left;
            let Some(payload) = bytes.get_mut(at..at + here) else { break };
            let Masked { found, keep_back } = self.scrubber.mask_piece(payload);
            self.found |= found;
            let keep_back = if complete { 0 } else { keep_back };
            self.left -= (here - keep_back) as u64;
            at += here - keep_back;
            if keep_back > 0 {
                break;
            }
        }
        at
    }
}

/// Length of the payload once the header is complete; `None` before that.
fn payload_length(header: &[u8]) -> Option<u64> {
    let [_, second, extended @ ..] = header else { return None };
    // A server does not mask its frames; one that does has four more bytes before its payload.
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let length = match second & 0x7f {
        126 => u64::from(u16::from_be_bytes(extended.get(..2)?.try_into().ok()?)),
        127 => u64::from_be_bytes(extended.get(..8)?.try_into().ok()?),
        short => u64::from(short),
    };
    let extended_length = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    (extended.len() >= extended_length + mask).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "s3cr3t-token-0123456789";

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x81];
        match payload.len() {
            short @ ..126 => bytes.push(u8::try_from(short).unwrap()),
            long => {
                bytes.push(126);
                bytes.extend(u16::try_from(long).unwrap().to_be_bytes());
            }
        }
        bytes.extend(payload);
        bytes
    }

    fn run(bytes: &[u8], size: usize) -> Vec<u8> {
        let scrubber = Scrubber::new(&[SECRET.as_bytes()]);
        let mut frames = FrameScrubber::new(&scrubber);
        let (mut kept, mut sent) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            kept.extend_from_slice(piece);
            let ready = frames.mask(&mut kept);
            sent.extend(kept.drain(..ready));
        }
        assert!(kept.is_empty(), "a complete frame is not held back");
        sent
    }

    #[test]
    fn c01_masks_a_secret_inside_frames_and_keeps_the_framing() {
        let echo =
            |text: &str| [frame(b"hello"), frame(text.as_bytes()), frame(&vec![b's'; 300]), vec![0x88, 0]];
        let sent = echo(&format!("Bearer {SECRET} and s3cr")).concat();
        let expected = echo(&format!("Bearer {} and s3cr", "*".repeat(SECRET.len()))).concat();
        for size in 1..sent.len() {
            assert_eq!(run(&sent, size), expected, "pieces of {size}");
        }
    }

    /// E24: a length beyond anything costs nothing: payload is never collected.
    #[test]
    fn e24_follows_absurd_lengths() {
        let mut bytes = vec![0x82, 127];
        bytes.extend((u64::MAX >> 1).to_be_bytes());
        bytes.extend(vec![7; 1000]);
        assert_eq!(run(&bytes, 64), bytes);
    }
}
