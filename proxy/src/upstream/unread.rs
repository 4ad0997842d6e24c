//! A connection that is passed on unread: bytes both ways until both sides are done, counted and bounded.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use freeboard_policy::Reason;

use super::counted::Counted;
use crate::error::Stop;
use crate::http1::{Input, Patience, Stream};
use crate::limits;

/// What one connection may carry.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub to_upstream: u64,
    pub to_guest: u64,
}

/// Passes bytes on until both sides have ended. When it is dropped midway (run ended, permission gone), both connections close.
/// Says who broke the connection off, where it was not ended in order.
///
/// # Errors
/// `connection_too_large`, `upstream_timeout` when nothing moved for the idle time, `client_timeout` and `upstream_timeout` for a
/// side that takes nothing.
pub async fn relay(
    guest: &Stream,
    upstream: &Stream,
    bounds: Bounds,
    counted: &Counted,
) -> Result<Option<&'static str>, Stop> {
    let to_upstream = pump(guest, upstream, bounds.to_upstream, &counted.to_upstream, counted);
    let to_guest = pump(upstream, guest, bounds.to_guest, &counted.to_guest, counted);
    let to_upstream = async {
        to_upstream.await.map_err(|moved| (moved, Reason::UpstreamTimeout, "the guest", "the upstream"))
    };
    let to_guest =
        async { to_guest.await.map_err(|moved| (moved, Reason::ClientTimeout, "the upstream", "the guest")) };
    let Err((moved, slow, from, to)) = tokio::try_join!(to_upstream, to_guest) else { return Ok(None) };
    match moved {
        Moved::TooMuch(limit) => {
            Err(Stop::with(Reason::ConnectionTooLarge, format!("more than {limit} bytes from {from}")))
        }
        Moved::Idle => Err(Stop::new(Reason::UpstreamTimeout, "nothing moved")),
        Moved::NotTaken => Err(Stop::with(slow, format!("{to} takes nothing"))),
        // A reset is how many programs end a connection.
        Moved::BrokenOff => Ok(Some("broken off")),
    }
}

enum Moved {
    TooMuch(u64),
    Idle,
    NotTaken,
    BrokenOff,
}

async fn pump(
    from: &Stream,
    to: &Stream,
    limit: u64,
    moved: &AtomicU64,
    counted: &Counted,
) -> Result<(), Moved> {
    let mut input = Input::default();
    loop {
        let before = counted.total();
        match input.fill_much(from, Patience::For(limits::CONNECTION_IDLE_TIMEOUT)).await {
            Ok(0) => break,
            Ok(_) => {}
            // One quiet direction is no idle connection while the other moves.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && counted.total() != before => continue,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Moved::Idle),
            Err(_) => return Err(Moved::BrokenOff),
        }
        let count = input.bytes().len();
        if moved.load(Ordering::Relaxed) + count as u64 > limit {
            return Err(Moved::TooMuch(limit));
        }
        match to.write_all(input.bytes(), limits::CLIENT_WRITE_TIMEOUT).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Moved::NotTaken),
            Err(_) => return Err(Moved::BrokenOff),
        }
        moved.fetch_add(count as u64, Ordering::Relaxed);
        input.consume(count);
        input.release();
    }
    // Half-close: the other direction may still have something to say.
    to.shutdown(limits::LINGER_TIMEOUT).await;
    Ok(())
}
