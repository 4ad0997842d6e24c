//! Collects a run's output, cuts it at the limit and sends it on: at once when it is much or old, else with the end.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::super::frame::{Body, Frame};
use super::super::limits::{OUTPUT_CHUNK_BYTES, OUTPUT_FLOOD_BYTES, OUTPUT_LATENCY};

#[derive(Debug)]
pub(super) struct Output {
    run: u64,
    limit: u64,
    written: [u64; 2],
    /// Messages not sent yet, and the unfinished one.
    ready: Vec<u8>,
    pending: Vec<u8>,
    pending_stream: u8,
    oldest: Option<Instant>,
}

/// Whether the run may go on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    Flood,
}

impl Output {
    pub(super) fn new(run: u64, limit: u64) -> Self {
        Self {
            run,
            limit,
            written: [0; 2],
            ready: Vec::new(),
            pending: Vec::new(),
            pending_stream: 1,
            oldest: None,
        }
    }

    /// Takes bytes of stream 1 or 2; those above the limit are counted and dropped.
    pub(super) fn push(&mut self, stream: u8, bytes: &[u8]) -> Verdict {
        let [out, err] = &mut self.written;
        let written = if stream == 1 { out } else { err };
        let room = usize::try_from(self.limit.saturating_sub(*written)).unwrap_or(usize::MAX);
        *written = written.saturating_add(bytes.len() as u64);
        let flood = *written > self.limit.saturating_add(OUTPUT_FLOOD_BYTES);
        let kept = bytes.get(..room).unwrap_or(bytes);
        if !kept.is_empty() {
            if stream != self.pending_stream {
                self.finish_pending();
                self.pending_stream = stream;
            }
            self.oldest.get_or_insert_with(Instant::now);
            for chunk in kept.chunks(OUTPUT_CHUNK_BYTES) {
                self.pending.extend_from_slice(chunk);
                if self.pending.len() >= OUTPUT_CHUNK_BYTES {
                    self.finish_pending();
                }
            }
        }
        if flood { Verdict::Flood } else { Verdict::Fine }
    }

    /// Whether `stream` had more than its limit.
    pub(super) fn truncated(&self, stream: u8) -> bool {
        let [out, err] = self.written;
        (if stream == 1 { out } else { err }) > self.limit
    }

    /// Whether it is time to send although the run goes on.
    pub(super) fn is_due(&self) -> bool {
        !self.ready.is_empty() || self.oldest.is_some_and(|oldest| oldest.elapsed() >= OUTPUT_LATENCY)
    }

    pub(super) fn send(&mut self, control: &UnixStream) -> io::Result<()> {
        self.finish_pending();
        self.oldest = None;
        if self.ready.is_empty() {
            return Ok(());
        }
        let result = (&*control).write_all(&self.ready);
        self.ready.clear();
        result
    }

    /// Sends what is left and the last message in one write.
    pub(super) fn send_with(&mut self, control: &UnixStream, last: Body) -> io::Result<()> {
        self.finish_pending();
        self.ready.extend_from_slice(&Frame { run: self.run, body: last }.encode());
        (&*control).write_all(&self.ready)
    }

    fn finish_pending(&mut self) {
        if !self.pending.is_empty() {
            let body = Body::Output { stream: self.pending_stream, bytes: std::mem::take(&mut self.pending) };
            self.ready.extend_from_slice(&Frame { run: self.run, body }.encode());
        }
    }
}
