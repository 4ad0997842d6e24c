//! Worker processes: started ahead, given to one caller each, replaced when they die, misbehave or have served long.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::super::CreateError;
use super::frame::{Body, FIRST_RUN, Frame};
use super::limits::{ACQUIRE_TIMEOUT, MAX_IDLE_WORKERS, MAX_RUNS_PER_WORKER, SPARE_WORKERS, START_TIMEOUT};
use super::measure::{Boundary, Ours};
use super::process::Process;

/// Room for what a worker says at once: a read for each, not one for each doubling of a buffer.
const USUAL_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(super) struct Workers {
    program: PathBuf,
    memory_mib: u32,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Have served this caller and serve no other; the one that served last is at the back.
    idle: VecDeque<(Option<String>, Worker)>,
    /// Have served nobody and may be starting still.
    spares: Vec<Process>,
    served: bool,
}

/// A process that has locked itself down and was measured.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    stream: UnixStream,
    received: Vec<u8>,
    next_run: u64,
    pub(super) boundary: Boundary,
}

/// A worker on loan for one run. Dropping it ends the worker; `give_back` keeps it.
#[derive(Debug)]
pub(super) struct Lease {
    worker: Worker,
    caller: Option<String>,
    workers: Arc<Workers>,
    _permit: OwnedSemaphorePermit,
}

impl Workers {
    pub(super) fn new(program: PathBuf, memory_mib: u32, most: usize) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(most));
        Arc::new(Self { program, memory_mib, permits, state: Mutex::default() })
    }

    /// Takes a worker that has served nobody.
    pub(super) fn adopt(&self, worker: Process) {
        self.lock().spares.push(worker);
    }

    /// A worker that has served nobody but `caller`. Dropped midway, nothing is left.
    pub(super) async fn acquire(self: &Arc<Self>, caller: Option<&str>) -> Result<Lease, CreateError> {
        let permit = timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(CreateError::Host {
                what: "all workers are busy".to_owned(),
                help: "try again, or allow more runs at once".to_owned(),
            });
        };
        let worker = match self.take_idle(caller) {
            Some(worker) => worker,
            None => {
                let spare = self.lock().spares.pop();
                let process = spare.map_or_else(|| Process::start(&self.program, self.memory_mib), Ok)?;
                // Another caller's worker starts while this one's is in use: not for the first, which may be the only one.
                if self.lock().served {
                    self.keep_spares()?;
                }
                timeout(START_TIMEOUT, Worker::of(process, &self.program)).await.unwrap_or_else(|_| {
                    Err(step("waiting for a worker to lock itself down", io::ErrorKind::TimedOut.into()))
                })?
            }
        };
        self.lock().served = true;
        Ok(Lease { worker, caller: caller.map(str::to_owned), workers: Arc::clone(self), _permit: permit })
    }

    fn take_idle(&self, caller: Option<&str>) -> Option<Worker> {
        let idle = &mut self.lock().idle;
        let at = idle.iter().rposition(|(owner, _)| owner.as_deref() == caller)?;
        idle.remove(at).map(|(_, worker)| worker).filter(Worker::is_alive)
    }

    /// Starts processes ahead until there are enough. Does not wait for them.
    pub(super) fn keep_spares(&self) -> Result<(), CreateError> {
        let mut state = self.lock();
        while state.spares.len() < SPARE_WORKERS {
            state.spares.push(Process::start(&self.program, self.memory_mib)?);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Keeps the worker for the caller's next run, unless it has served long enough.
    pub(super) fn give_back(self) {
        let Self { worker, caller, workers, _permit } = self;
        if worker.next_run - FIRST_RUN >= MAX_RUNS_PER_WORKER {
            return;
        }
        let mut state = workers.lock();
        state.idle.push_back((caller, worker));
        let _oldest = if state.idle.len() > MAX_IDLE_WORKERS { state.idle.pop_front() } else { None };
    }
}

impl std::ops::Deref for Lease {
    type Target = Worker;
    fn deref(&self) -> &Worker {
        &self.worker
    }
}

impl std::ops::DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }
}

impl Worker {
    /// Waits until the process has locked itself down, and measures it.
    async fn of(process: Process, program: &Path) -> Result<Self, CreateError> {
        let failed = |error| step("waiting for a worker to lock itself down", error);
        process.control.set_nonblocking(true).map_err(failed)?;
        let stream = process.control.try_clone().and_then(UnixStream::from_std).map_err(failed)?;
        let pid = process.id();
        let ours = Ours::read(program).map_err(|error| step("measuring a worker", error))?;
        let boundary = Boundary::default();
        let received = Vec::with_capacity(USUAL_BYTES);
        let mut worker = Self { process, stream, received, next_run: FIRST_RUN, boundary };
        let first = worker.receive().await.map_err(failed)?;
        let report = match first.body {
            Body::Ready { report } => report,
            Body::Failed { step: text } => return Err(step(&text, io::ErrorKind::Other.into())),
            _ => return Err(step("a worker spoke out of turn", io::ErrorKind::InvalidData.into())),
        };
        worker.boundary =
            Boundary::of(pid, &ours, &report).map_err(|error| step("measuring a worker", error))?;
        Ok(worker)
    }

    fn is_alive(&self) -> bool {
        // A worker says nothing between runs: a readable socket means that it has ended or speaks out of turn.
        let mut byte = [0];
        matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The number of the run that begins now.
    pub(super) fn begin_run(&mut self) -> u64 {
        let number = self.next_run;
        self.next_run += 1;
        number
    }

    /// Sends one message, with the run's socket to its gate where there is one. Not cancel-safe: whoever drops it midway
    /// drops the worker too.
    pub(super) async fn send(&self, frame: &Frame, door: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = frame.encode();
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            let with = door.filter(|_| sent == 0);
            sent += self.stream.async_io(Interest::WRITABLE, || send_part(&self.stream, rest, with)).await?;
        }
        Ok(())
    }

    /// The next message. Cancel-safe.
    pub(super) async fn receive(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.received).map_err(io::Error::other)? {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Kills the process and waits for its end. Says how it ended. After this the run's code is certainly gone.
    pub(super) fn kill(&mut self) -> String {
        self.process.kill()
    }
}

fn send_part(stream: &UnixStream, bytes: &[u8], door: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let doors: Vec<BorrowedFd<'_>> = door.into_iter().collect();
    if !doors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&doors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

pub(super) fn step(what: &str, source: io::Error) -> CreateError {
    CreateError::Step { step: what.to_owned(), source }
}
