//! The one thread that writes the log.
//!
//! It takes what waits in the queue, turns it into lines, writes them in one go, and rests for a moment: at high rates
//! one wake-up and one system call serve many records.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use freeboard_audit::{Entry, Event, Finding, Severity};

use super::flood::Flood;
use super::log::{Log, LogError, LogSettings};
use super::{Message, Shared, Slot, event};
use crate::broker::Clock;
use crate::limits::{
    AUDIT_BATCH_BYTES, AUDIT_BATCH_PAUSE, AUDIT_RETRY, AUDIT_SHARED_BELOW, AUDIT_SHARED_RECORDS, AUDIT_WAKE,
};

/// Owns the thread. `stop` writes what is left.
#[derive(Debug)]
pub struct Writer {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        settings: LogSettings,
        clock: Clock,
        receiver: Receiver<Message>,
        sender: SyncSender<Message>,
        shared: Arc<Shared>,
    ) -> Result<Self, LogError> {
        let sync_every = settings.sync_every;
        let log = Log::open(settings, clock.now().unix_ms)?;
        let worker = Worker {
            log,
            clock,
            shared: Arc::clone(&shared),
            flood: Flood::default(),
            held: Vec::new(),
            flushes: Vec::new(),
            failing_since: None,
            sync_every,
            synced: Instant::now(),
            syncer: Syncer::start().map_err(LogError::Thread)?,
            more_waits: false,
            stopping: false,
        };
        let thread = std::thread::Builder::new()
            .name("audit-writer".to_owned())
            .spawn(move || worker.run(&receiver))
            .map_err(LogError::Thread)?;
        Ok(Self { sender, shared, thread: Some(thread) })
    }

    /// Writes what waits and ends. Called once nothing is served any more.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.stop.store(true, Ordering::Release);
            // A queue without room is full of records that come first; the flag ends the thread then. An error of `join`
            // means that the thread has panicked, which was reported.
            let _ = self.sender.try_send(Message::Stop);
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker {
    log: Log,
    clock: Clock,
    shared: Arc<Shared>,
    flood: Flood,
    /// Slots of records that are encoded but not in the file yet: their room is not free before.
    held: Vec<Slot>,
    flushes: Vec<SyncSender<()>>,
    failing_since: Option<Instant>,
    sync_every: std::time::Duration,
    synced: Instant,
    syncer: Syncer,
    /// A batch was full before the queue was empty.
    more_waits: bool,
    stopping: bool,
}

impl Worker {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            if self.failing_since.is_none() {
                self.collect(receiver);
            }
            self.write();
            if self.failing_since.is_some() && self.shared.stop.load(Ordering::Acquire) {
                tracing::error!("the audit log cannot be written: its last records are lost");
                return;
            }
            if self.stopping {
                break;
            }
            match (self.failing_since, self.more_waits) {
                (Some(_), _) => std::thread::sleep(AUDIT_RETRY),
                (None, true) => {}
                (None, false) => std::thread::sleep(AUDIT_BATCH_PAUSE),
            }
        }
        let left = self.flood.close(self.clock.now().unix_ms, true);
        for (time, entry) in &left {
            self.append(*time, entry);
        }
        self.write();
        if let Err(error) = self.log.sync() {
            tracing::error!(%error, "the end of the audit log was not flushed to the disk");
        }
    }

    /// Waits for a message and takes all that wait, up to a batch.
    fn collect(&mut self, receiver: &Receiver<Message>) {
        match receiver.recv_timeout(AUDIT_WAKE) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout) => self.stopping = self.shared.stop.load(Ordering::Acquire),
            Err(RecvTimeoutError::Disconnected) => self.stopping = true,
        }
        self.more_waits = true;
        for taken in 1_usize.. {
            if self.stopping || self.log.pending_bytes() >= AUDIT_BATCH_BYTES {
                break;
            }
            if taken.is_multiple_of(AUDIT_SHARED_RECORDS) && self.shared.unwritten() < AUDIT_SHARED_BELOW {
                std::thread::yield_now();
            }
            let Ok(message) = receiver.try_recv() else {
                self.more_waits = false;
                break;
            };
            self.take(message);
        }
        if !self.flood.is_empty() {
            let over = self.flood.close(self.clock.now().unix_ms, false);
            for (time, entry) in &over {
                self.append(*time, entry);
            }
        }
        self.report_lost();
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Decided { outcome, slot } => {
                let (time, entry) = event::entry(*outcome);
                if let Some(entry) = self.flood.admit(time, entry) {
                    self.append(time, &entry);
                }
                self.held.push(slot);
            }
            Message::Happened { time_unix_ms, entry, slot } => {
                self.append(time_unix_ms, &entry);
                self.held.push(slot);
            }
            Message::Flush(done) => self.flushes.push(done),
            Message::Stop => self.stopping = true,
        }
    }

    fn append(&mut self, time_unix_ms: u64, entry: &Entry) {
        if let Err(error) = self.log.append(time_unix_ms, entry) {
            tracing::error!(%error, "an audit record was not written");
            self.shared.lose_one();
        }
    }

    /// Refusals that found the queue full are owned up to.
    fn report_lost(&mut self) {
        let lost = self.shared.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            self.finding(
                Severity::Error,
                "audit_records_lost",
                format!("{lost} refusals found no room in the queue"),
            );
        }
    }

    fn finding(&mut self, severity: Severity, code: &str, detail: String) {
        let finding = Finding { severity, code: code.into(), credential: None, detail: detail.into() };
        let entry = Entry { policy: None, run: None, event: Event::Finding(finding) };
        self.append(self.clock.now().unix_ms, &entry);
    }

    fn write(&mut self) {
        let due = self.synced.elapsed() >= self.sync_every;
        let mut result = self.log.flush().and_then(|()| self.syncer.failure());
        if result.is_ok() && due {
            result = if self.sync_every.is_zero() { self.log.sync() } else { self.log.sync_on(&self.syncer) };
            self.synced = Instant::now();
        }
        match (result, self.failing_since) {
            (Ok(()), None) => self.settle(),
            (Ok(()), Some(since)) => self.recovered(since),
            (Err(error), None) => {
                tracing::error!(%error, "the audit log cannot be written: requests are refused until it can");
                self.failing_since = Some(Instant::now());
                self.shared.failed.store(true, Ordering::Release);
                self.shared.failures.fetch_add(1, Ordering::Relaxed);
            }
            (Err(_), Some(_)) => {}
        }
    }

    fn recovered(&mut self, since: Instant) {
        self.failing_since = None;
        let seconds = since.elapsed().as_secs_f32();
        tracing::warn!(seconds, "the audit log can be written again");
        self.finding(
            Severity::Error,
            "audit_was_unavailable",
            format!("the log could not be written for {seconds:.1} s; requests were refused"),
        );
        self.settle();
        self.shared.failed.store(false, Ordering::Release);
    }

    /// Gives back the room of what is in the file.
    fn settle(&mut self) {
        self.held.clear();
        self.shared.sequence.store(self.log.chain.seq(), Ordering::Relaxed);
        self.shared.settled_unix_ms.store(self.clock.now().unix_ms, Ordering::Relaxed);
        for done in self.flushes.drain(..) {
            // An error means that nobody waits any more.
            let _ = done.send(());
        }
    }
}

/// Flushes to the disk on a thread of its own: a slow disk must not keep records waiting, which would refuse requests.
pub(super) struct Syncer {
    files: SyncSender<File>,
    failures: Receiver<io::Error>,
}

impl Syncer {
    fn start() -> io::Result<Self> {
        let (files, queue) = sync_channel::<File>(1);
        let (failed, failures) = sync_channel(1);
        std::thread::Builder::new().name("audit-sync".to_owned()).spawn(move || {
            while let Ok(file) = queue.recv() {
                if let Err(error) = file.sync_data() {
                    // One failure is enough to refuse requests.
                    let _ = failed.try_send(error);
                }
            }
        })?;
        Ok(Self { files, failures })
    }

    /// False while the one before is still at work.
    pub(super) fn sync(&self, file: File) -> bool {
        self.files.try_send(file).is_ok()
    }

    fn failure(&self) -> io::Result<()> {
        self.failures.try_recv().map_or(Ok(()), Err)
    }
}
