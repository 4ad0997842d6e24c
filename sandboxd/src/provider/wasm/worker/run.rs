//! One run: a fresh instance, its code, its timers and requests, and why it ended.
//!
//! The instance is made before its run is known, so that nobody waits for it, and used once: nothing of it is left when
//! [`Ready::run`] returns, since memory, tables and globals belong to the store that is dropped there (F33). The instance is never waited for inside a host function: all waiting is in `wait`, with the deadline (F30).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use wasmtime::{Instance, Memory, ResourceLimiter, Store, Trap, TypedFunc, UpdateDeadline};

use super::super::frame::{Body, Done, RunMessage};
use super::super::limits::START_TIMEOUT;
use super::engine::{Loaded, TABLE_ELEMENTS};
use super::exchange::{Answer, Exchanges};
use super::output::{Output, Verdict};
use super::ticker::Ticker;

/// What `start`, `turn` and `deliver` of the engine say besides a number of milliseconds (engine/main.c).
const FINISHED: i64 = -1;
const OUT_OF_MEMORY: i64 = -3;
const UNSETTLED: i64 = -4;

/// Room that is made in the engine before a program comes.
const USUAL_CODE_BYTES: usize = 4 << 10;

/// What host functions work on.
pub(super) struct Guest {
    pub(super) memory: Option<Memory>,
    pub(super) output: Output,
    pub(super) exchanges: Exchanges,
    pub(super) started: Instant,
    pub(super) control: Arc<UnixStream>,
    deadline: Instant,
    memory_bytes: usize,
    memory_refused: bool,
}

/// Ends an instance from a host function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stop {
    #[error("the deadline has come")]
    Deadline,
    #[error("too much output")]
    Flood,
    #[error("sandboxd is gone")]
    Orphaned,
    #[error("the engine broke its contract")]
    Broken,
}

impl Guest {
    /// Of no run yet: its time is over, and none of its output would be kept.
    fn of_nobody(control: Arc<UnixStream>, loaded: &Loaded) -> Self {
        let now = Instant::now();
        Self {
            memory: None,
            output: Output::new(0, 0),
            exchanges: Exchanges::new(None),
            started: now,
            control,
            deadline: now,
            memory_bytes: loaded.memory_bytes,
            memory_refused: false,
        }
    }

    /// Becomes the guest of a run that begins now.
    fn begin(&mut self, number: u64, message: &RunMessage, door: Option<OwnedFd>) {
        self.output = Output::new(number, message.output_limit);
        self.exchanges = Exchanges::new(door);
        self.started = Instant::now();
        self.deadline = self.started + Duration::from_millis(message.timeout_ms);
    }

    /// Called at every epoch while code runs.
    pub(super) fn check(&mut self) -> Result<(), Stop> {
        if Instant::now() >= self.deadline {
            return Err(Stop::Deadline);
        }
        if is_hung_up(&self.control) {
            return Err(Stop::Orphaned);
        }
        if self.output.is_due() {
            self.output.send(&self.control).map_err(|_| Stop::Orphaned)?;
        }
        Ok(())
    }

    pub(super) fn push_output(&mut self, stream: u8, bytes: &[u8]) -> Result<(), Stop> {
        if self.output.push(stream, bytes) == Verdict::Flood {
            return Err(Stop::Flood);
        }
        if self.output.is_due() {
            self.output.send(&self.control).map_err(|_| Stop::Orphaned)?;
        }
        Ok(())
    }
}

impl ResourceLimiter for Guest {
    fn memory_growing(
        &mut self,
        _: usize,
        desired: usize,
        _: Option<usize>,
    ) -> Result<bool, wasmtime::Error> {
        let allowed = desired <= self.memory_bytes;
        self.memory_refused |= !allowed;
        Ok(allowed)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool, wasmtime::Error> {
        Ok(desired <= TABLE_ELEMENTS)
    }
}

/// How a run ended, before it becomes a status.
enum End {
    Said(i64),
    Stopped(Stop),
    Trapped(String),
}

/// An instance of the snapshot that has run nothing.
pub(super) struct Ready {
    store: Store<Guest>,
    exports: Exports,
}

impl Ready {
    pub(super) fn new(control: &Arc<UnixStream>, loaded: &Loaded) -> Result<Self, wasmtime::Error> {
        let mut store = Store::new(loaded.engine(), Guest::of_nobody(Arc::clone(control), loaded));
        store.limiter(|guest| guest);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            context.data_mut().check().map_err(wasmtime::Error::from)?;
            Ok(UpdateDeadline::Continue(1))
        });
        let instance = loaded.pre().instantiate(&mut store)?;
        let exports = exports(&mut store, &instance)?;
        store.data_mut().memory = Some(exports.memory);
        Ok(Self { store, exports })
    }

    /// Lets the engine make room for a usual program, so that what its first call takes is not part of the run. None of the
    /// guest's code is there yet.
    pub(super) fn warm_up(&mut self) -> Result<(), wasmtime::Error> {
        self.store.data_mut().deadline = Instant::now() + START_TIMEOUT;
        let room = [0; USUAL_CODE_BYTES];
        put(&mut self.store, &self.exports, &[&room]).map(drop)
    }

    /// Runs `message` and reports its end. An error means that sandboxd cannot be talked to any more.
    pub(super) fn run(
        self,
        ticker: &Ticker,
        number: u64,
        message: &RunMessage,
        door: Option<OwnedFd>,
    ) -> io::Result<()> {
        let Self { mut store, exports } = self;
        store.data_mut().begin(number, message, door);
        ticker.begin();
        let end = match drive(&mut store, &exports, message) {
            Ok(said) => End::Said(said),
            Err(error) => match error.downcast_ref::<Stop>() {
                Some(stop) => End::Stopped(*stop),
                None => End::Trapped(describe(&error)),
            },
        };
        ticker.end();
        let guest = store.data_mut();
        // Requests that nobody waits for any more are cut before sandboxd hears of the end.
        guest.exchanges.close();
        if matches!(end, End::Stopped(Stop::Orphaned)) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let done = done(end, guest);
        let control = Arc::clone(&guest.control);
        guest.output.send_with(&control, Body::Done(done))
    }
}

fn describe(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<Trap>() {
        Some(trap) => format!("the engine trapped: {trap}"),
        None => format!("the engine could not be started: {error}"),
    }
}

/// The one table from an end to a status.
fn done(end: End, guest: &Guest) -> Done {
    let (exit_code, timed_out, detail) = match end {
        End::Said(FINISHED) => (0, false, String::new()),
        End::Said(UNSETTLED) => {
            (13, false, "the program ended before a promise that it awaited was settled".to_owned())
        }
        End::Said(OUT_OF_MEMORY) => (137, false, "the memory limit was reached".to_owned()),
        End::Said(_) => (1, false, String::new()),
        End::Stopped(Stop::Deadline) => (124, true, "the time was over".to_owned()),
        End::Stopped(Stop::Flood) => {
            (153, false, "the program wrote far more output than is kept".to_owned())
        }
        End::Stopped(Stop::Broken | Stop::Orphaned) => {
            (134, false, "the engine broke its contract".to_owned())
        }
        // The engine's own code gives up in some places where no memory is left.
        End::Trapped(_) if guest.memory_refused => (137, false, "the memory limit was reached".to_owned()),
        End::Trapped(detail) => (134, false, detail),
    };
    Done {
        exit_code,
        timed_out,
        stdout_truncated: guest.output.truncated(1),
        stderr_truncated: guest.output.truncated(2),
        detail,
    }
}

struct Exports {
    memory: Memory,
    start: TypedFunc<(u32, u32, u64), i64>,
    inbox: TypedFunc<u32, u32>,
    turn: TypedFunc<(), i64>,
    deliver: TypedFunc<(u32, u32, u32), i64>,
}

fn drive(store: &mut Store<Guest>, exports: &Exports, message: &RunMessage) -> Result<i64, wasmtime::Error> {
    let mut seed = [0; 8];
    host_random(&mut seed)?;

    let code = message.code.as_bytes();
    let surface = message.surface.as_bytes();
    if !put(store, exports, &[code, &[0], surface, &[0]])? {
        return Ok(OUT_OF_MEMORY);
    }
    let lengths = (length(code)?, length(surface)?);
    let said = exports.start.call(&mut *store, (lengths.0, lengths.1, u64::from_le_bytes(seed)))?;
    if said < 0 {
        return Ok(said);
    }
    loop {
        let said = exports.turn.call(&mut *store, ())?;
        if said < 0 {
            return Ok(said);
        }
        let idle = Duration::from_millis(said.unsigned_abs());
        for answer in wait(store.data_mut(), idle)? {
            let Answer { number, head, body } = answer;
            if !put(store, exports, &[head.as_bytes(), &[0], &body, &[0]])? {
                return Ok(OUT_OF_MEMORY);
            }
            let said =
                exports.deliver.call(&mut *store, (number, length(head.as_bytes())?, length(&body)?))?;
            if said < 0 {
                return Ok(said);
            }
        }
    }
}

fn exports(store: &mut Store<Guest>, instance: &Instance) -> Result<Exports, wasmtime::Error> {
    Ok(Exports {
        memory: instance.get_memory(&mut *store, "memory").ok_or(Stop::Broken)?,
        start: instance.get_typed_func(&mut *store, "start")?,
        inbox: instance.get_typed_func(&mut *store, "inbox")?,
        turn: instance.get_typed_func(&mut *store, "turn")?,
        deliver: instance.get_typed_func(&mut *store, "deliver")?,
    })
}

/// Writes `parts` one after the other into the guest's inbox. False when the guest has no room for them.
fn put(store: &mut Store<Guest>, exports: &Exports, parts: &[&[u8]]) -> Result<bool, wasmtime::Error> {
    let total = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut at = exports.inbox.call(&mut *store, u32::try_from(total).map_err(|_| Stop::Broken)?)? as usize;
    if at == 0 {
        return Ok(false);
    }
    for part in parts {
        exports.memory.write(&mut *store, at, part).map_err(|_| Stop::Broken)?;
        at = at.saturating_add(part.len());
    }
    Ok(true)
}

fn length(bytes: &[u8]) -> Result<u32, Stop> {
    u32::try_from(bytes.len()).map_err(|_| Stop::Broken)
}

pub(super) fn host_random(bytes: &mut [u8]) -> Result<(), Stop> {
    getrandom::fill(bytes).map_err(|_| Stop::Broken)
}

/// Waits until an answer is there, a timer is due or the deadline has come. Returns the answers.
fn wait(guest: &mut Guest, idle: Duration) -> Result<Vec<Answer>, Stop> {
    guest.output.send(&guest.control).map_err(|_| Stop::Orphaned)?;
    let wake = Instant::now().checked_add(idle);
    loop {
        let answers = guest.exchanges.take_answers();
        let now = Instant::now();
        if now >= guest.deadline {
            return Err(Stop::Deadline);
        }
        if !answers.is_empty() || wake.is_some_and(|wake| now >= wake) {
            return Ok(answers);
        }
        let until = [Some(guest.deadline), wake, guest.exchanges.next_deadline()].into_iter().flatten().min();
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let ready = {
            let mut descriptors = vec![PollFd::new(&*guest.control, PollFlags::RDHUP)];
            descriptors.extend(guest.exchanges.poll_descriptors());
            match poll(&mut descriptors, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Stop::Broken),
            }
            descriptors.iter().map(PollFd::revents).collect::<Vec<_>>()
        };
        let (control, exchanges) = ready.split_first().ok_or(Stop::Broken)?;
        if !control.is_empty() {
            return Err(Stop::Orphaned);
        }
        guest.exchanges.advance(exchanges);
    }
}

fn is_hung_up(control: &UnixStream) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::RDHUP)];
    matches!(poll(&mut descriptors, Some(&Timespec::default())), Ok(ready) if ready > 0)
}
