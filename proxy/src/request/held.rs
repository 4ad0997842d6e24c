//! A request body that is held because a rule looks at it. It goes upstream byte for byte as it came; what the rule sees is
//! decoded, within a bound.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::{GzDecoder, ZlibDecoder};
use freeboard_policy::{BodyCoding, HeldBody, PendingBody, Reason};

use super::{Answered, Body, Fields, Length, RequestHead};
use crate::error::Stop;
use crate::limits;
use crate::respond::Sink;

/// A body that was read to its end, or as far as it is worth holding.
#[derive(Debug)]
pub struct Held {
    content: Content,
    trailers: Option<Fields>,
    given: bool,
    /// The bytes count against the run until this goes.
    _room: Room,
}

/// What was held.
#[derive(Debug)]
pub struct Content {
    raw: Vec<u8>,
    decoded: Decoded,
}

#[derive(Debug)]
enum Decoded {
    /// As it came.
    Same,
    /// As it came, and the rest of it is still to come.
    Beginning,
    Other(Vec<u8>),
    TooLarge,
    Truncated,
    Undecodable,
}

/// Bytes that a run holds in memory, taken back when dropped.
#[derive(Debug)]
pub struct Room {
    taken: u64,
    counter: Arc<AtomicU64>,
}

impl Room {
    pub fn new(counter: &Arc<AtomicU64>) -> Self {
        Self { taken: 0, counter: Arc::clone(counter) }
    }

    /// # Errors
    /// `run_limit`: the run's requests hold too much already.
    fn take(&mut self, bytes: u64) -> Result<(), Stop> {
        let before = self.counter.fetch_add(bytes, Ordering::Relaxed);
        self.taken += bytes;
        if before.saturating_add(bytes) > limits::HELD_BYTES_PER_RUN {
            return Err(Stop::new(
                Reason::RunLimit,
                "too many bytes of bodies are held for rules that look at them",
            ));
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// Reads the body to its end, at most `limit` bytes as it came and as decoded.
///
/// # Errors
/// The guest is gone, slow or breaks its framing; the run holds too much.
pub async fn hold<B: Body, S: Sink>(
    head: &mut RequestHead,
    body: &mut B,
    sink: &mut S,
    pending: &PendingBody,
    mut room: Room,
) -> Result<Held, Stop> {
    let nothing = |decoded, room| {
        let content = Content { raw: Vec::new(), decoded };
        Held { content, trailers: None, given: false, _room: room }
    };
    let limit = pending.limit_bytes();
    let Some(coding) = pending.coding() else { return Ok(nothing(Decoded::Undecodable, room)) };
    match head.length {
        Length::None => return Ok(nothing(Decoded::Same, room)),
        Length::Sized(length) if length > limit && !pending.judges_beginnings() => {
            return Ok(nothing(Decoded::TooLarge, room));
        }
        _ => {}
    }
    if std::mem::take(&mut head.expects_continue) {
        sink.go_on().await?;
    }
    let mut raw = Vec::new();
    while let Some(piece) = body.next().await? {
        let length = piece.len() as u64;
        if (raw.len() as u64).saturating_add(length) > limit {
            return Ok(nothing(Decoded::TooLarge, room));
        }
        room.take(length)?;
        raw.extend_from_slice(piece);
        if pending.is_enough(&raw) {
            let content = Content { raw, decoded: Decoded::Beginning };
            return Ok(Held { content, trailers: None, given: false, _room: room });
        }
    }
    let decoded = match coding {
        BodyCoding::Identity => Decoded::Same,
        BodyCoding::Gzip | BodyCoding::Deflate => {
            // SECURITY: a small body can become a large one: what it becomes is bounded and counted too (ATTACKS E).
            room.take(limit)?;
            decode(coding, &raw, limit)
        }
    };
    let trailers = body.trailers().filter(|trailers| !trailers.is_empty());
    Ok(Held { content: Content { raw, decoded }, trailers, given: false, _room: room })
}

fn decode(coding: BodyCoding, raw: &[u8], limit: u64) -> Decoded {
    let mut out = Vec::new();
    let bound = limit.saturating_add(1);
    let (result, rest) = match coding {
        BodyCoding::Deflate => {
            let mut decoder = ZlibDecoder::new(raw);
            (decoder.by_ref().take(bound).read_to_end(&mut out), decoder.into_inner())
        }
        _ => {
            let mut decoder = GzDecoder::new(raw);
            (decoder.by_ref().take(bound).read_to_end(&mut out), decoder.into_inner())
        }
    };
    match result {
        _ if out.len() as u64 > limit => Decoded::TooLarge,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Decoded::Truncated,
        Err(_) => Decoded::Undecodable,
        // SECURITY: bytes after the first member are a second body to some readers and nothing to others.
        Ok(_) if !rest.is_empty() => Decoded::Undecodable,
        Ok(_) => Decoded::Other(out),
    }
}

impl Content {
    /// As it came.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// What rules look at.
    pub fn view(&self) -> HeldBody<'_> {
        match &self.decoded {
            Decoded::Same => HeldBody::Whole(&self.raw),
            Decoded::Beginning => HeldBody::Beginning(&self.raw),
            Decoded::Other(bytes) => HeldBody::Whole(bytes),
            Decoded::TooLarge => HeldBody::TooLarge,
            Decoded::Truncated => HeldBody::Truncated,
            Decoded::Undecodable => HeldBody::Undecodable,
        }
    }
}

impl Held {
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// What rules look at, should they be asked again, and the body as it goes on. `rest` is the body that was read.
    pub fn split<'h, B: Body>(&'h mut self, rest: &'h mut B) -> (&'h Content, Replay<'h, B>) {
        let Self { content, trailers, given, .. } = self;
        let rest = matches!(content.decoded, Decoded::Beginning).then_some(rest);
        (content, Replay { raw: &content.raw, trailers, given, rest })
    }
}

/// A held body on its way upstream.
#[derive(Debug)]
pub struct Replay<'h, B> {
    raw: &'h [u8],
    trailers: &'h mut Option<Fields>,
    given: &'h mut bool,
    /// What was not held.
    rest: Option<&'h mut B>,
}

impl<B: Body> Body for Replay<'_, B> {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        if !std::mem::replace(self.given, true) && !self.raw.is_empty() {
            return Ok(Some(self.raw));
        }
        match &mut self.rest {
            Some(rest) => rest.next().await,
            None => Ok(None),
        }
    }

    fn whole(&mut self) -> Option<&[u8]> {
        // A body with trailers keeps its framing: they come after it.
        if self.rest.is_some() || self.trailers.is_some() || std::mem::replace(self.given, true) {
            return None;
        }
        Some(self.raw)
    }

    fn is_done(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.is_done())
    }

    fn trailers(&mut self) -> Option<Fields> {
        match &mut self.rest {
            Some(rest) => rest.trailers(),
            None => self.trailers.take(),
        }
    }

    fn answered(&self) -> Option<&Answered> {
        self.rest.as_ref()?.answered()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn decodes_one_member_within_its_bound() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(b"hello").unwrap();
        let zlib = zlib.finish().unwrap();
        assert!(
            matches!(decode(BodyCoding::Gzip, &gzip(b"hello"), 5), Decoded::Other(bytes) if bytes == b"hello")
        );
        assert!(matches!(decode(BodyCoding::Deflate, &zlib, 5), Decoded::Other(bytes) if bytes == b"hello"));
        assert!(matches!(decode(BodyCoding::Gzip, &gzip(b"hello"), 4), Decoded::TooLarge));
        assert!(matches!(decode(BodyCoding::Deflate, &gzip(b"hello"), 9), Decoded::Undecodable));
        assert!(matches!(decode(BodyCoding::Gzip, b"hello, this is no gzip", 99), Decoded::Undecodable));
        let whole = gzip(b"hello");
        assert!(matches!(decode(BodyCoding::Gzip, &whole[..whole.len() - 3], 9), Decoded::Truncated));
        let twice = [whole.clone(), whole].concat();
        assert!(matches!(decode(BodyCoding::Gzip, &twice, 99), Decoded::Undecodable));
    }

    #[test]
    fn a_bomb_stops_at_the_bound() {
        let bomb = gzip(&vec![0; 32 << 20]);
        assert!(bomb.len() < 64 << 10);
        assert!(matches!(decode(BodyCoding::Gzip, &bomb, 1 << 20), Decoded::TooLarge));
    }

    #[test]
    fn what_a_run_holds_is_counted_and_given_back() {
        let counter = Arc::new(AtomicU64::new(0));
        let mut room = Room::new(&counter);
        room.take(limits::HELD_BYTES_PER_RUN).unwrap();
        assert_eq!(Room::new(&counter).take(1).unwrap_err().reason, Reason::RunLimit);
        drop(room);
        Room::new(&counter).take(1).unwrap();
        assert_eq!(counter.load(Ordering::Relaxed), 0);
    }
}
