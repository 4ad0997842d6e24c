//! The daemon's side of the launcher: requests go out, answers find the sandbox that waits for them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::child::launcher::Launcher;
use crate::child::message::{FromLauncher, ToLauncher, receive, send};
use crate::child::sys::watch_readable;
use crate::isolate::cgroup::{Group, Usage};
use crate::isolate::{Boundary, Limits};
use crate::provider::{Ahead, CreateError, Service};

/// The child of a run as the launcher made it.
#[derive(Debug)]
pub(super) struct Child {
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub group: Option<Group>,
    /// Comes when the child, all that it started and its group are gone.
    pub gone: oneshot::Receiver<Usage>,
}

/// Why the launcher made no child.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the launcher process is gone; restart sandboxd")]
    Gone,
    #[error("{step}: {message}")]
    Failed { step: String, errno: Option<i32>, message: String },
    #[error("cannot speak with the launcher")]
    Io(#[from] io::Error),
}

#[derive(Debug)]
pub(in crate::provider) struct Link {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

/// A launcher that is forked before there is a runtime and spoken with inside it.
#[derive(Debug)]
pub(in crate::provider) struct LazyLink(Mutex<LauncherState>);

#[derive(Debug)]
enum LauncherState {
    /// By the first run, which comes while the process still has one thread.
    Unforked,
    Forked(Launcher),
    Linked(Arc<Link>),
    /// The runtime could not take it over.
    Lost,
}

impl LazyLink {
    pub(in crate::provider) fn new(launcher: Launcher) -> Self {
        Self(Mutex::new(LauncherState::Forked(launcher)))
    }

    /// The launcher that `service` needs. `ahead`: the limits of a first process that is made before its run comes, where
    /// they are known by then.
    pub(in crate::provider) fn of(service: Service, ahead: Option<Limits>) -> Result<Self, CreateError> {
        let launcher = match (service, ahead) {
            (Service::Unlikely, _) => return Ok(Self(Mutex::new(LauncherState::Unforked))),
            // One with other limits than these makes another process when the run comes.
            (Service::OneRun(Some(Ahead::Native(launcher))), Some(_)) => Ok(launcher),
            (Service::OneRun(_), Some(limits)) => Launcher::start_for_one_run(limits),
            (Service::OneRun(_), None) | (Service::ManyRuns, _) => Launcher::start(),
        };
        let step = "fork the launcher (the process must have one thread)";
        launcher.map(Self::new).map_err(|source| CreateError::Step { step: step.into(), source })
    }

    /// The link; made by the first run, inside the runtime that serves the runs.
    pub(in crate::provider) fn get(&self) -> Result<Arc<Link>, CreateError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let link = match std::mem::replace(&mut *state, LauncherState::Lost) {
            LauncherState::Linked(link) => Ok(link),
            LauncherState::Forked(launcher) => Link::new(launcher).map(Arc::new),
            LauncherState::Unforked => Launcher::start().and_then(Link::new).map(Arc::new),
            LauncherState::Lost => Err(io::Error::from(io::ErrorKind::NotConnected)),
        };
        let link =
            link.map_err(|source| CreateError::Step { step: "speak with the launcher".into(), source })?;
        *state = LauncherState::Linked(Arc::clone(&link));
        Ok(link)
    }
}

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Waiting>,
    /// Dropped last: it waits until the launcher, which has seen the end of the socket, has cleaned up.
    launcher: Launcher,
}

type Created = Result<Child, LinkError>;

/// Who waits for what. `None` after the launcher was lost.
#[derive(Debug, Default)]
struct Waiting {
    next_id: u64,
    lost: bool,
    created: HashMap<u64, oneshot::Sender<Created>>,
    gone: HashMap<u64, oneshot::Sender<Usage>>,
}

impl Link {
    /// Takes the launcher over; starts the task that reads its answers.
    pub(super) fn new(launcher: Launcher) -> io::Result<Self> {
        let socket = launcher.socket().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        let socket = watch_readable(socket.try_clone_to_owned()?)?;
        let shared = Arc::new(Shared { socket, waiting: Mutex::new(Waiting::default()), launcher });
        let reader = tokio::spawn(read_answers(Arc::clone(&shared)));
        Ok(Self { shared, reader })
    }

    /// Asks for the child of a run. `channel` is the child's end.
    ///
    /// When the future is dropped midway, the answer finds nobody: the child's pidfd is closed unused, and the child ends
    /// by itself because the other end of its channel is closed.
    pub(super) async fn create(&self, boundary: Boundary, channel: BorrowedFd<'_>) -> Created {
        let (answer, receiver) = oneshot::channel();
        let id = {
            let mut waiting = self.shared.waiting();
            if waiting.lost {
                return Err(LinkError::Gone);
            }
            waiting.next_id += 1;
            let id = waiting.next_id;
            waiting.created.insert(id, answer);
            id
        };
        // A packet of a few kilobytes to a process that does nothing else: it does not block for long.
        let message = ToLauncher::Create { id, boundary: Box::new(boundary) };
        if let Err(error) = send(&self.shared.socket, &message, &[channel]) {
            self.shared.waiting().created.remove(&id);
            return Err(error.into());
        }
        receiver.await.unwrap_or(Err(LinkError::Gone))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shared {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, message: FromLauncher, mut descriptors: Vec<OwnedFd>) {
        let mut waiting = self.waiting();
        match message {
            FromLauncher::Created { id, pid, group } => {
                let (gone_sender, gone) = oneshot::channel();
                let Some(pidfd) = descriptors.pop() else { return };
                waiting.gone.insert(id, gone_sender);
                if let Some(answer) = waiting.created.remove(&id) {
                    let _ = answer.send(Ok(Child { pid, pidfd, group, gone }));
                }
            }
            FromLauncher::Failed { id, step, errno, message } => {
                if let Some(answer) = waiting.created.remove(&id) {
                    let _ = answer.send(Err(LinkError::Failed { step, errno, message }));
                }
            }
            FromLauncher::Gone { id, usage } => {
                self.launcher.heard_gone();
                if let Some(gone) = waiting.gone.remove(&id) {
                    let _ = gone.send(usage);
                }
            }
        }
    }

    /// Everybody who waits hears that the launcher is gone (their senders are dropped).
    fn lose(&self) {
        let mut waiting = self.waiting();
        waiting.lost = true;
        waiting.created.clear();
        waiting.gone.clear();
    }
}

/// Ends with the launcher, or when the link is dropped.
async fn read_answers(shared: Arc<Shared>) {
    loop {
        let received = shared
            .socket
            .async_io(Interest::READABLE, |socket| receive::<FromLauncher>(socket, RecvFlags::DONTWAIT))
            .await;
        match received {
            Ok(Some((message, descriptors))) => shared.deliver(message, descriptors),
            Ok(None) | Err(_) => break,
        }
    }
    shared.lose();
}
