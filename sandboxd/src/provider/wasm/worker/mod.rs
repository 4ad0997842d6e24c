//! The worker process: guest code runs here and nowhere else.
//!
//! start -> load the engine -> lock down -> say so -> for each message `Run`: a fresh instance, its output, its end.
//! The process has no file, no network, no other process and no right to any; what it can reach is its socket to sandboxd
//! and, during a run with grants, the socket on which it hands streams to the run's gate. It ends when that socket does.

mod engine;
mod exchange;
mod host;
mod lockdown;
mod output;
mod request;
mod response;
mod run;
mod syscalls;
mod ticker;

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::frame::{Body, FIRST_RUN, Frame, RunMessage};
use engine::Loaded;
use lockdown::StepError;
use run::Ready;
use ticker::Ticker;

/// The hidden first argument that makes sandboxd a worker.
pub const SUBCOMMAND: &str = "__wasm-worker";

/// Runs as a worker when the arguments (without the program's name) say so; `None` otherwise.
///
/// Call it first thing in `main`, before any thread: the worker enters a user namespace of its own, which the kernel
/// allows to a process with one thread only.
pub fn run_if_asked(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != SUBCOMMAND {
        return None;
    }
    let memory_mib = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    let Some(memory_mib) = memory_mib else { return Some(ExitCode::FAILURE) };
    let served =
        lockdown::take_control_socket().and_then(|control| serve(control, memory_mib, Runs::Many, None));
    Some(if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The life of a worker that was forked, not started: the socket is the only thing that it keeps, and there is one run. `begun` is
/// closed when it leaves a processor to others.
pub(super) fn live(control: OwnedFd, begun: OwnedFd, memory_mib: u32) -> io::Result<()> {
    crate::child::sys::scrub_environment();
    // The name of the thread is what an operator sees in a list of processes; nothing hangs on it.
    let _ = rustix::thread::set_name(c"freeboard-wasm");
    std::env::set_current_dir("/")?;
    lockdown::keep_only(&[&control, &begun])?;
    serve(control, memory_mib, Runs::One, Some(begun))
}

/// How many runs a worker is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    One,
    Many,
}

/// Everything, until sandboxd closes the socket or there are no more runs.
fn serve(control: OwnedFd, memory_mib: u32, runs: Runs, begun: Option<OwnedFd>) -> io::Result<()> {
    let control = Arc::new(UnixStream::from(control));
    let (loaded, mut first, ticker, report) = match prepare(&control, memory_mib, runs, begun) {
        Ok(prepared) => prepared,
        Err((step, error)) => {
            let body = Body::Failed { step: format!("{step}: {error}") };
            return (&*control).write_all(&Frame { run: 0, body }.encode());
        }
    };
    (&*control).write_all(&Frame { run: 0, body: Body::Ready { report } }.encode())?;
    // While sandboxd measures.
    first.warm_up().map_err(io::Error::other)?;
    Worker { control, loaded, ticker, received: Vec::new() }.serve(first, runs)
}

fn prepare(
    control: &Arc<UnixStream>,
    memory_mib: u32,
    runs: Runs,
    begun: Option<OwnedFd>,
) -> Result<(Loaded, Ready, Ticker, String), StepError> {
    let ((loaded, first), left) = lockdown::leave_namespaces_while(begun, || {
        let loaded = engine::load(memory_mib, runs);
        let with_first = loaded.and_then(|loaded| Ready::new(control, &loaded).map(|first| (loaded, first)));
        with_first.map_err(|error| ("engine", io::Error::other(error.to_string())))
    })?;
    let (entered, filter) = lockdown::enter(left)?;
    // A new thread makes system calls of its own, which the filter does not allow: meanwhile this one looks at the walls.
    let (ticker, begun) = Ticker::start(&loaded).map_err(|error| ("ticker", error))?;
    let report = entered.report();
    begun.wait();
    filter.apply().map_err(|error| ("seccomp", error))?;
    Ok((loaded, first, ticker, report))
}

/// A locked-down worker between runs.
struct Worker {
    control: Arc<UnixStream>,
    loaded: Loaded,
    ticker: Ticker,
    received: Vec<u8>,
}

impl Worker {
    fn serve(mut self, first: Ready, runs: Runs) -> io::Result<()> {
        let mut ready = first;
        while let Some((number, message, door)) = self.next_run()? {
            if number == FIRST_RUN {
                lockdown::become_opaque()?;
            }
            ready.run(&self.ticker, number, &message, door)?;
            if runs == Runs::One {
                break;
            }
            // While sandboxd deals with the end of this run.
            ready = Ready::new(&self.control, &self.loaded).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Waits for the next message. `None` when sandboxd has closed the socket.
    fn next_run(&mut self) -> io::Result<Option<(u64, RunMessage, Option<OwnedFd>)>> {
        let mut door = None;
        loop {
            let frame = Frame::decode(&mut self.received).map_err(io::Error::other)?;
            if let Some(Frame { run, body }) = frame {
                let Body::Run(message) = body else { return Err(io::ErrorKind::InvalidData.into()) };
                return Ok(Some((run, message, door)));
            }
            let mut chunk = [0_u8; 16 << 10];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut chunk)];
            let read =
                match recvmsg(self.control.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                    Ok(message) => message.bytes,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                };
            for control in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = control {
                    door = descriptors.last();
                }
            }
            if read == 0 {
                return Ok(None);
            }
            self.received.extend_from_slice(chunk.get(..read).unwrap_or_default());
        }
    }
}
