//! A websocket after its handshake: bytes both ways until both sides are done.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freeboard_policy::Reason;
use sha1::{Digest, Sha1};

use super::answer::AnswerHead;
use super::counted::Counted;
use super::frames::FrameScrubber;
use crate::credential::Scrubber;
use crate::error::Stop;
use crate::http1::{Input, Patience, Stream};
use crate::limits;
use crate::request::Websocket;

/// True when the upstream's 101 answers exactly this handshake (RFC 6455 4.1): websocket, and the accept value of
/// the nonce. Anything else is not a websocket, whatever it says (ATTACKS B31).
pub fn accepts(asked: &Websocket, answer: &AnswerHead) -> bool {
    let mut digest = Sha1::new();
    digest.update(asked.key.as_bytes());
    digest.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let expected = STANDARD.encode(digest.finalize());
    answer.status == 101
        && answer.websocket
        && answer.websocket_accept.as_deref() == Some(expected.as_bytes())
}

/// One side of a relay.
#[derive(Debug)]
pub struct Side<'a> {
    pub stream: &'a Stream,
    pub input: &'a mut Input,
}

/// Pumps both ways until both sides have ended, one fails, or nothing moves for the idle time. Called by `pipeline`
/// after the 101 went to the guest. When it is dropped midway (run ended), both connections close.
///
/// # Errors
/// `client_closed`, `upstream_unreachable` or `upstream_timeout`: the ordinary endings are `Ok`.
pub async fn relay(
    guest: Side<'_>,
    upstream: Side<'_>,
    scrubber: Option<&Scrubber>,
    counted: &Counted,
) -> Result<(), Stop> {
    let frames = scrubber.map(FrameScrubber::new);
    let to_upstream = pump(guest.stream, guest.input, upstream.stream, None, &counted.to_upstream, counted);
    let to_guest = pump(upstream.stream, upstream.input, guest.stream, frames, &counted.to_guest, counted);
    match tokio::join!(to_upstream, to_guest) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(Moved::TimedOut), Err(Moved::TimedOut)) => {
            Err(Stop::new(Reason::UpstreamTimeout, "the websocket was idle"))
        }
        // A reset after the close frames is how many programs end a websocket.
        _ => Ok(()),
    }
}

enum Moved {
    TimedOut,
    Failed,
}

async fn pump(
    from: &Stream,
    input: &mut Input,
    to: &Stream,
    mut frames: Option<FrameScrubber<'_>>,
    moved: &AtomicU64,
    counted: &Counted,
) -> Result<(), Moved> {
    let result = pump_until_end(from, input, to, frames.as_mut(), moved, counted).await;
    // Half-close: the other direction may still have something to say.
    to.shutdown(limits::LINGER_TIMEOUT).await;
    result
}

async fn pump_until_end(
    from: &Stream,
    input: &mut Input,
    to: &Stream,
    mut frames: Option<&mut FrameScrubber<'_>>,
    moved: &AtomicU64,
    counted: &Counted,
) -> Result<(), Moved> {
    loop {
        let ready = match &mut frames {
            Some(frames) => frames.mask(input.bytes_mut()),
            None => input.bytes().len(),
        };
        if ready > 0 {
            let bytes = input.bytes().get(..ready).unwrap_or_default();
            to.write_all(bytes, limits::CLIENT_WRITE_TIMEOUT).await.map_err(|_| Moved::Failed)?;
            moved.fetch_add(ready as u64, Ordering::Relaxed);
            input.consume(ready);
        }
        let before = counted.total();
        let patience = Patience::For(limits::WEBSOCKET_IDLE_TIMEOUT);
        match input.fill(from, limits::BUFFER_BYTES, patience).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // One quiet direction is no idle websocket while the other moves.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && counted.total() != before => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Moved::TimedOut),
            Err(_) => return Err(Moved::Failed),
        }
    }
}
