//! The body of one message, read piece by piece from a stream.

use std::io;
use std::time::Duration;

use super::chunked::{Decoder, Malformed, Step};
use super::{Input, Patience, Stream, head};
use crate::limits::{BUFFER_BYTES, MAX_TRAILER_BYTES, PIECE_BYTES};
use crate::request::Fields;

/// What is left to read. The bytes of the last piece stay in the input until the next call or `settle`.
#[derive(Debug)]
pub struct Reader {
    state: State,
    pending: usize,
    /// Bytes that were handed out.
    taken: u64,
    trailers: Option<Fields>,
}

#[derive(Debug)]
enum State {
    Sized(u64),
    Chunked(Decoder),
    UntilClose,
    Done,
}

/// Why a body cannot be read on.
#[derive(Debug)]
pub enum BodyError {
    Malformed(&'static str),
    /// The peer closed before the end.
    Closed,
    /// Nothing came for too long.
    TimedOut,
    Failed(io::Error),
}

impl From<Malformed> for BodyError {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Malformed(what)
    }
}

impl Reader {
    pub fn none() -> Self {
        Self::new(State::Done)
    }

    pub fn sized(length: u64) -> Self {
        Self::new(if length == 0 { State::Done } else { State::Sized(length) })
    }

    pub fn chunked() -> Self {
        Self::new(State::Chunked(Decoder::default()))
    }

    pub fn until_close() -> Self {
        Self::new(State::UntilClose)
    }

    const fn new(state: State) -> Self {
        Self { state, pending: 0, taken: 0, trailers: None }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub fn take_trailers(&mut self) -> Option<Fields> {
        self.trailers.take()
    }

    /// Frees the last piece.
    pub fn settle(&mut self, input: &mut Input) {
        input.consume(std::mem::take(&mut self.pending));
    }

    /// All of a body of known length, where it is here already.
    pub fn whole<'i>(&mut self, input: &'i mut Input) -> Option<&'i [u8]> {
        self.settle(input);
        let length = match self.state {
            State::Done => 0,
            State::Sized(left) => usize::try_from(left).ok().filter(|left| input.bytes().len() >= *left)?,
            State::Chunked(_) | State::UntilClose => return None,
        };
        self.state = State::Done;
        self.pending = length;
        input.bytes().get(..length)
    }

    /// The next piece, as much as one read gives; `None` at the end.
    ///
    /// # Errors
    /// The body ends early, stalls for `patience`, or breaks its coding.
    pub async fn next<'i>(
        &mut self,
        stream: &Stream,
        input: &'i mut Input,
        patience: Duration,
    ) -> Result<Option<&'i [u8]>, BodyError> {
        let piece = self.fetch(stream, input, Patience::For(patience)).await?;
        Ok(piece.and_then(|piece| input.bytes().get(..piece)))
    }

    /// Like `next`; answers how much of the front of the input the piece is. The time is that of the whole piece: framing that
    /// comes byte by byte does not begin it anew. After `TimedOut` it can be called again.
    ///
    /// # Errors
    /// As `next`.
    pub async fn fetch(
        &mut self,
        stream: &Stream,
        input: &mut Input,
        patience: Patience,
    ) -> Result<Option<usize>, BodyError> {
        self.settle(input);
        let mut patience = patience;
        let piece = loop {
            if let Some(piece) = self.step(input)? {
                break piece;
            }
            if self.is_done() {
                return Ok(None);
            }
            patience = patience.fixed();
            let filled = if self.is_large() && input.is_empty() {
                input.fill_much(stream, patience).await
            } else {
                // A chunk-size line or trailer section may stand unfinished in the input; their own limits are lower.
                input.fill(stream, PIECE_BYTES + MAX_TRAILER_BYTES, patience).await
            };
            match filled {
                Ok(0) if matches!(self.state, State::UntilClose) => {
                    self.state = State::Done;
                    return Ok(None);
                }
                Ok(0) => return Err(BodyError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(BodyError::TimedOut),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(BodyError::Closed),
                Err(error) => return Err(BodyError::Failed(error)),
            }
        };
        self.pending = piece;
        self.taken += piece as u64;
        Ok(Some(piece))
    }

    /// Much is known to come, or much has come.
    fn is_large(&self) -> bool {
        let known = if let State::Sized(left) = self.state { left } else { 0 };
        known.max(self.taken) > BUFFER_BYTES as u64
    }

    /// Length of the piece at the front of the input, if there is one. Consumes framing.
    fn step(&mut self, input: &mut Input) -> Result<Option<usize>, BodyError> {
        loop {
            let here = input.bytes();
            match &mut self.state {
                State::Done => return Ok(None),
                State::UntilClose => return Ok((!here.is_empty()).then_some(here.len())),
                State::Sized(left) => {
                    if here.is_empty() {
                        return Ok(None);
                    }
                    let piece = usize::try_from(*left).unwrap_or(usize::MAX).min(here.len());
                    *left -= piece as u64;
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    return Ok(Some(piece));
                }
                State::Chunked(decoder) => match decoder.step(here)? {
                    Step::More => return Ok(None),
                    Step::Data(piece) => return Ok(Some(piece)),
                    Step::Skip(count) => input.consume(count),
                    Step::End(count) => {
                        let section = here.get(..count).unwrap_or_default();
                        if count > 2 {
                            self.trailers = Some(head::trailers(section).map_err(BodyError::Malformed)?);
                        }
                        self.state = State::Done;
                        input.consume(count);
                        return Ok(None);
                    }
                },
            }
        }
    }
}
