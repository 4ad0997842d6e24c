//! Streams that the h2 crate refuses by itself, without ever showing the request: they are recorded as refusals too.
//!
//! In: the bytes of a connection, both ways. Out: streams that the guest opened and that were reset or answered before a
//! request came of them. Only the frames' heads are read (RFC 9113 4.1); what they carry is h2's.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freeboard_policy::Reason;

use crate::error::Stop;

/// A frame's head: length, kind, flags, stream.
pub const HEAD_BYTES: usize = 9;
/// What a client sends before its first frame (RFC 9113 3.4).
const PREFACE_BYTES: usize = 24;
/// Streams of one connection that were opened and did not become a request yet, many times what may be open at once: h2 shows
/// each at once. At the limit the oldest is forgotten, and should h2 refuse it after all, that has no record.
const UNSEEN_STREAMS: usize = 1024;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

/// What was seen of one connection; shared by its stream and its loop.
#[derive(Debug, Clone, Default)]
pub struct Unseen(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    from_guest: Frames,
    to_guest: Frames,
    preface: usize,
    /// The highest stream that the guest has opened.
    last: u32,
    /// Streams without a request yet.
    opened: BTreeSet<u32>,
    /// Those of them that have ended.
    refused: Vec<(u32, Option<u32>)>,
    /// A GOAWAY went to the guest.
    ended: bool,
}

impl Unseen {
    pub fn read(&self, mut bytes: &[u8]) {
        let mut seen = self.lock();
        let rest = PREFACE_BYTES.saturating_sub(seen.preface).min(bytes.len());
        seen.preface += rest;
        bytes = bytes.get(rest..).unwrap_or_default();
        let Seen { from_guest, last, opened, .. } = &mut *seen;
        from_guest.pass(bytes, |frame| {
            if frame.kind == HEADERS && frame.stream > *last {
                *last = frame.stream;
                opened.insert(frame.stream);
                // Bounded whatever h2 does with them: the oldest is forgotten.
                if opened.len() > UNSEEN_STREAMS {
                    opened.pop_first();
                }
            }
        });
    }

    pub fn written(&self, bytes: &[u8]) {
        let mut seen = self.lock();
        let Seen { to_guest, opened, refused, ended, .. } = &mut *seen;
        to_guest.pass(bytes, |frame| {
            *ended |= frame.kind == GOAWAY;
            if matches!(frame.kind, HEADERS | RST_STREAM) && opened.remove(&frame.stream) {
                refused.push((frame.stream, frame.code));
            }
        });
    }

    /// The request of this stream is there: what becomes of it is recorded with it.
    pub fn shown(&self, stream: u32) {
        let mut seen = self.lock();
        seen.opened.remove(&stream);
        seen.refused.retain(|(refused, _)| *refused != stream);
    }

    /// Why streams ended that were never shown. To be asked only when h2 has shown all that it has.
    pub fn take(&self) -> Vec<Stop> {
        let refused = std::mem::take(&mut self.lock().refused);
        refused.into_iter().map(|(_, code)| stop(code)).collect()
    }

    /// Whether h2 told the guest that the connection ends.
    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The h2 crate answers a field section that is too large with 431, and everything else with an error of the stream.
fn stop(code: Option<u32>) -> Stop {
    match code.map(h2::Reason::from) {
        None => Reason::HeadTooLarge.into(),
        Some(h2::Reason::REFUSED_STREAM) => Stop::new(Reason::RunLimit, "too many streams at once"),
        Some(code) => Stop::with(Reason::Malformed, format!("HTTP/2: the stream was refused: {code:?}")),
    }
}

/// One frame.
#[derive(Debug, Clone, Copy)]
struct Frame {
    kind: u8,
    stream: u32,
    /// The error of an RST_STREAM.
    code: Option<u32>,
}

/// Finds the frames in a direction's bytes, however they are cut.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD_BYTES],
    /// Bytes of `head` that are there.
    read: usize,
    /// Bytes of the frame's content that are still to come.
    left: usize,
    code: u32,
}

impl Frames {
    fn pass(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        while let Some((&first, rest)) = bytes.split_first() {
            if let Some(place) = self.head.get_mut(self.read) {
                *place = first;
                self.read += 1;
                bytes = rest;
                if self.read < HEAD_BYTES {
                    continue;
                }
                let [a, b, c, ..] = self.head;
                self.left = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
                self.code = 0;
                if self.kind() != RST_STREAM {
                    found(self.frame(None));
                }
            } else {
                let (taken, rest) = bytes.split_at(self.left.min(bytes.len()));
                bytes = rest;
                self.left -= taken.len();
                if self.kind() == RST_STREAM {
                    self.code = taken.iter().fold(self.code, |code, byte| code << 8 | u32::from(*byte));
                    if self.left == 0 {
                        found(self.frame(Some(self.code)));
                    }
                }
            }
            if self.left == 0 {
                self.read = 0;
            }
        }
    }

    fn frame(&self, code: Option<u32>) -> Frame {
        let [.., a, b, c, d] = self.head;
        Frame { kind: self.kind(), stream: u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff, code }
    }

    const fn kind(&self) -> u8 {
        let [_, _, _, kind, ..] = self.head;
        kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        let [_, a, b, c] = length;
        [&[a, b, c, kind, 0][..], &stream.to_be_bytes(), content].concat()
    }

    fn reasons(unseen: &Unseen) -> Vec<Reason> {
        unseen.take().into_iter().map(|stop| stop.reason).collect()
    }

    #[test]
    fn finds_refused_streams_however_the_bytes_are_cut() {
        let mut from_guest = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let mut to_guest = frame(4, 0, &[0; 6]);
        for stream in [1, 3, 5, 7, 9] {
            from_guest.extend(frame(HEADERS, stream, &[1; 40]));
        }
        from_guest.extend(frame(0, 3, &[HEADERS; 30]));
        to_guest.extend(frame(RST_STREAM, 1, &1_u32.to_be_bytes()));
        to_guest.extend(frame(RST_STREAM, 5, &7_u32.to_be_bytes()));
        to_guest.extend(frame(HEADERS, 7, &[8; 3]));
        to_guest.extend(frame(RST_STREAM, 9, &1_u32.to_be_bytes()));
        // A stream that was never opened.
        to_guest.extend(frame(RST_STREAM, 11, &1_u32.to_be_bytes()));
        for step in [1, 2, 7, 13, 1000] {
            let unseen = Unseen::default();
            from_guest.chunks(step).for_each(|piece| unseen.read(piece));
            unseen.shown(3);
            to_guest.chunks(step).for_each(|piece| unseen.written(piece));
            // Shown late: what becomes of it has a record of its own.
            unseen.shown(9);
            assert_eq!(
                reasons(&unseen),
                [Reason::Malformed, Reason::RunLimit, Reason::HeadTooLarge],
                "{step}"
            );
            assert!(unseen.take().is_empty());
        }
    }

    #[test]
    fn forgets_rather_than_grows() {
        let unseen = Unseen::default();
        unseen.read(&[0; PREFACE_BYTES]);
        for stream in 0..3000_u32 {
            unseen.read(&frame(HEADERS, stream * 2 + 1, &[]));
        }
        assert_eq!(unseen.lock().opened.len(), UNSEEN_STREAMS);
    }
}
