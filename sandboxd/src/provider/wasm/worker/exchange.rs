//! The requests of one run: each a stream to the run's gate, written and read without ever waiting.
//!
//! In: what the guest asked for. Out: answers, each a response or the reason why there is none. The gate's door takes one
//! end of a fresh socket pair per request; there is no other way out of this process.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};

use super::super::limits::{EXCHANGE_TIMEOUT, MAX_EXCHANGES, MAX_WAITING_EXCHANGES};
use super::request::Prepared;
use super::response::Reader;

/// What the guest gets for the request with this number: JSON and the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) number: u32,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    fn failed(number: u32, why: &str) -> Self {
        Self { number, head: serde_json::json!({ "error": why }).to_string(), body: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Exchanges {
    door: Option<OwnedFd>,
    next: u32,
    open: Vec<Exchange>,
    waiting: VecDeque<(u32, Prepared)>,
    answers: Vec<Answer>,
}

#[derive(Debug)]
struct Exchange {
    number: u32,
    stream: OwnedFd,
    out: Vec<u8>,
    sent: usize,
    reader: Reader,
    deadline: Instant,
}

/// Bytes that are read from a stream at a time.
const READ_BYTES: usize = 16 << 10;

impl Exchanges {
    pub(super) fn new(door: Option<OwnedFd>) -> Self {
        Self { door, next: 0, open: Vec::new(), waiting: VecDeque::new(), answers: Vec::new() }
    }

    /// Takes a request. `None` when too many wait already; everything else is an answer, sooner or later.
    pub(super) fn start(&mut self, head: &[u8], body: &[u8]) -> Option<u32> {
        if self.open.len() + self.waiting.len() + self.answers.len() >= MAX_WAITING_EXCHANGES {
            return None;
        }
        let number = self.next;
        self.next = self.next.checked_add(1).filter(|next| i32::try_from(*next).is_ok())?;
        match Prepared::read(head, body) {
            Ok(prepared) => self.waiting.push_back((number, prepared)),
            Err(error) => self.answers.push(Answer::failed(number, &error.to_string())),
        }
        self.open_waiting();
        Some(number)
    }

    /// Forgets a request; the gate sees its stream close.
    pub(super) fn cancel(&mut self, number: u32) {
        self.open.retain(|exchange| exchange.number != number);
        self.waiting.retain(|(waiting, _)| *waiting != number);
        self.answers.retain(|answer| answer.number != number);
        self.open_waiting();
    }

    /// Closes everything, the door too.
    pub(super) fn close(&mut self) {
        *self = Self::new(None);
    }

    pub(super) fn take_answers(&mut self) -> Vec<Answer> {
        let now = Instant::now();
        let answers = &mut self.answers;
        self.open.retain(|exchange| {
            let late = now >= exchange.deadline;
            if late {
                answers.push(Answer::failed(exchange.number, "the request took too long"));
            }
            !late
        });
        self.open_waiting();
        std::mem::take(&mut self.answers)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.iter().map(|exchange| exchange.deadline).min()
    }

    /// In the order that `advance` expects.
    pub(super) fn poll_descriptors(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.open.iter().map(|exchange| {
            let writing = exchange.sent < exchange.out.len();
            let flags = if writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(exchange.stream.as_fd(), flags)
        })
    }

    /// Moves every exchange whose stream is ready, as far as it goes.
    pub(super) fn advance(&mut self, ready: &[PollFlags]) {
        let mut ready = ready.iter();
        let answers = &mut self.answers;
        self.open.retain_mut(|exchange| {
            if ready.next().is_none_or(PollFlags::is_empty) {
                return true;
            }
            let answer = exchange.advance();
            let goes_on = answer.is_none();
            answers.extend(answer);
            goes_on
        });
        self.open_waiting();
    }

    fn open_waiting(&mut self) {
        while self.open.len() < MAX_EXCHANGES {
            let Some((number, prepared)) = self.waiting.pop_front() else { return };
            match self.open(number, prepared) {
                Ok(exchange) => self.open.push(exchange),
                Err(why) => self.answers.push(Answer::failed(number, why)),
            }
        }
    }

    fn open(&self, number: u32, prepared: Prepared) -> Result<Exchange, &'static str> {
        let door = self.door.as_ref().ok_or("this run has no way to any network")?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (stream, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|_| "no descriptor is left for a request")?;
        hand_over(door, &theirs).map_err(|error| match error {
            Errno::AGAIN => "the gate is busy",
            _ => "this run has no way to any network",
        })?;
        let reader = Reader::new(prepared.is_head);
        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        Ok(Exchange { number, stream, out: prepared.bytes, sent: 0, reader, deadline })
    }
}

/// One message on the door: one byte, one stream.
fn hand_over(door: &OwnedFd, stream: &OwnedFd) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let streams = [stream.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(door, &[IoSlice::new(&[0])], &mut ancillary, flags)?;
    Ok(())
}

impl Exchange {
    /// Writes and reads until it would wait. An answer ends the exchange.
    fn advance(&mut self) -> Option<Answer> {
        match self.move_bytes() {
            Ok(false) => None,
            Ok(true) => {
                let (head, body) = self.reader.take();
                Some(Answer { number: self.number, head, body })
            }
            Err(why) => Some(Answer::failed(self.number, &why)),
        }
    }

    /// True when the response is whole.
    fn move_bytes(&mut self) -> Result<bool, String> {
        // A refusal may come, and the stream close, before the request is written: what was answered still counts.
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(&self.stream, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.sent = self.out.len(),
            }
        }
        let mut chunk = [0; READ_BYTES];
        loop {
            match rustix::io::read(&self.stream, &mut chunk) {
                Ok(0) => return self.reader.end().map_err(|error| error.to_string()),
                Ok(count) => {
                    let bytes = chunk.get(..count).unwrap_or_default();
                    if self.reader.push(bytes).map_err(|error| error.to_string())? {
                        return Ok(true);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(_) => return self.reader.end().map_err(|error| error.to_string()),
            }
        }
    }
}
