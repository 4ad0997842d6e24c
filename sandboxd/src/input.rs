//! Standard input of one run: comes in pieces, waits here until the program reads, and is counted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freeboard_wire::digest::hex;
use freeboard_wire::runs::{MAX_STDIN_BYTES, Stdin, Taken};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::limits::INPUT_PIECE_BYTES;

/// What one run is given, by its caller on one side, to its sandbox on the other.
#[derive(Debug)]
pub struct Input {
    state: Mutex<State>,
    /// Counts changes: bytes that came, bytes that went, the end.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Came, not yet gone to the sandbox.
    waiting: Vec<u8>,
    /// Bytes that came in all.
    taken: u64,
    digest: Sha256,
    ended: bool,
}

impl Input {
    /// What a Start says of it.
    pub fn of(stdin: Stdin) -> Self {
        let input = Self { state: Mutex::default(), changed: watch::Sender::new(0) };
        {
            let mut state = input.lock();
            state.take(&stdin.data);
            state.ended = !stdin.open;
        }
        input
    }

    /// Takes as much of `data`, which begins at `offset` of the input, as there is room for now, and then the end where `end`
    /// says so. What is there already is not taken again. Gives the bytes taken in all, and whether the end was said.
    pub fn put(&self, offset: u64, data: &[u8], end: bool) -> Result<(u64, bool), Gap> {
        let (before, told) = {
            let mut state = self.lock();
            let before = (state.taken, state.ended);
            let known = state.taken.checked_sub(offset).ok_or(Gap { taken: state.taken })?;
            let fresh = data.get(usize::try_from(known).unwrap_or(usize::MAX)..).unwrap_or_default();
            if !state.ended {
                let room = MAX_STDIN_BYTES.saturating_sub(state.waiting.len()).min(fresh.len());
                state.take(fresh.get(..room).unwrap_or_default());
                state.ended = end && room == fresh.len();
            }
            (before, (state.taken, state.ended))
        };
        // Nobody is woken for nothing, least of all who waits for room.
        if told != before {
            self.tell();
        }
        Ok(told)
    }

    /// The same, waiting up to `longest` for room.
    pub async fn put_all(
        &self,
        offset: u64,
        data: &[u8],
        end: bool,
        longest: Duration,
    ) -> Result<(u64, bool), Gap> {
        let whole = offset.saturating_add(data.len() as u64);
        let mut changes = self.changed.subscribe();
        let waited = tokio::time::timeout(longest, async {
            loop {
                // Before the look, so that room that is made meanwhile is not missed.
                changes.mark_unchanged();
                let told = self.put(offset, data, end)?;
                if told.0 >= whole || told.1 {
                    return Ok(told);
                }
                // The sender lives as long as this input.
                let _ = changes.changed().await;
            }
        });
        match waited.await {
            Ok(told) => told,
            Err(_) => self.put(offset, data, end),
        }
    }

    /// The next piece for the sandbox; `None` when nothing follows. A piece that was given and not delivered, since the future that
    /// waited for it was dropped, is lost: the run is over then.
    pub async fn next(&self) -> Option<Vec<u8>> {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            {
                let mut state = self.lock();
                if !state.waiting.is_empty() {
                    let piece = state.waiting.len().min(INPUT_PIECE_BYTES);
                    let piece = state.waiting.drain(..piece).collect();
                    drop(state);
                    self.tell();
                    return Some(piece);
                }
                if state.ended {
                    return None;
                }
            }
            let _ = changes.changed().await;
        }
    }

    /// What came so far.
    pub fn taken(&self) -> Taken {
        let state = self.lock();
        Taken { bytes: state.taken, sha256: hex(&state.digest.clone().finalize()) }
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, data: &[u8]) {
        self.waiting.extend_from_slice(data);
        self.taken += data.len() as u64;
        self.digest.update(data);
    }
}

/// A piece that begins after what was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`offset` is beyond the {taken} bytes that were taken so far")]
pub struct Gap {
    pub taken: u64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use freeboard_wire::digest::sha256_hex;

    use super::*;

    fn open(data: &[u8]) -> Input {
        Input::of(Stdin { data: data.to_vec(), open: true })
    }

    #[tokio::test]
    async fn pieces_come_in_order_and_a_repeated_one_comes_once() {
        let input = open(b"ab");
        assert_eq!(input.put(2, b"cd", false), Ok((4, false)));
        assert_eq!(input.put(2, b"cd", false), Ok((4, false)));
        assert_eq!(input.put(1, b"bcde", true), Ok((5, true)));
        assert_eq!(input.put(9, b"x", false), Err(Gap { taken: 5 }));
        assert_eq!(input.put(5, b"late", false), Ok((5, true)), "nothing follows the end");
        assert_eq!(input.next().await.as_deref(), Some(b"abcde".as_slice()));
        assert_eq!(input.next().await, None);
        assert_eq!(input.taken(), Taken { bytes: 5, sha256: sha256_hex(b"abcde") });
    }

    #[tokio::test]
    async fn what_has_no_room_waits_until_the_program_reads() {
        let input = Arc::new(open(&vec![1; MAX_STDIN_BYTES]));
        let full = MAX_STDIN_BYTES as u64;
        assert_eq!(
            input.put(full, b"x", true),
            Ok((full, false)),
            "the end of what was not taken is not said"
        );
        let writer = Arc::clone(&input);
        let writing = tokio::spawn(async move {
            writer.put_all(full, &vec![2; 3 * INPUT_PIECE_BYTES], true, Duration::from_secs(60)).await
        });
        let mut read = 0;
        while let Some(piece) = input.next().await {
            read += piece.len();
        }
        let whole = full + 3 * INPUT_PIECE_BYTES as u64;
        assert_eq!((writing.await.unwrap(), read as u64), (Ok((whole, true)), whole));
        let nobody = input.put_all(whole, b"", true, Duration::ZERO).await;
        assert_eq!(nobody, Ok((whole, true)));
    }
}
