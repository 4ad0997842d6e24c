//! sandboxd's end of a control connection: many calls at once, each answer given to the call that asked.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use freeboard_policy::Reason;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::frame::{Connection, FrameError, Receiver, Sender};
use crate::message::{
    Answer, AnswerBody, ApprovalWord, CloseGate, IssueCredential, OpenGate, PendingApproval, PrepareRun,
    Prepared, ProxyToken, Request, RequestBody, Revocation, RunNote, Trace,
};

/// Calls that wait to be written. Further callers wait their turn.
const QUEUE: usize = 64;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker refused: nothing was opened. `message` is for operators.
    #[error("the broker refused: {reason}: {message}")]
    Refused { reason: Reason, message: String },
    /// The connection is gone, and with it every gate that it had opened.
    #[error("the control connection to the broker is lost")]
    Lost,
    #[error("cannot connect to the broker")]
    Connect(#[source] std::io::Error),
    /// The broker answered another question: a fault of the broker.
    #[error("the broker gave an answer of the wrong kind")]
    WrongAnswer,
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<AnswerBody>>>>;
type Outgoing = (RequestBody, Vec<OwnedFd>, oneshot::Sender<AnswerBody>);

/// A control connection. Dropping it closes it, and the broker then closes all its gates.
#[derive(Debug)]
pub struct Client {
    outgoing: mpsc::Sender<Outgoing>,
    lost: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

impl Client {
    /// Connects to the broker's socket. Must be called inside a tokio runtime, which carries the two tasks.
    pub async fn connect(socket: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket).await.map_err(ClientError::Connect)?;
        Ok(Self::over(stream))
    }

    /// Uses a connected stream.
    pub fn over(stream: UnixStream) -> Self {
        let (sender, receiver) = Connection::new(stream).split();
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let (gone, lost) = watch::channel(false);
        let waiting = Waiting::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(write(sender, queue, Arc::clone(&waiting), lost.clone()));
        tasks.spawn(read(receiver, waiting, gone));
        Self { outgoing, lost, _tasks: tasks }
    }

    /// What must be known before a boundary is built.
    pub async fn prepare(&self, run: PrepareRun) -> Result<Prepared, ClientError> {
        match self.call(RequestBody::Prepare(run), Vec::new()).await? {
            AnswerBody::Prepared(prepared) => Ok(prepared),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// Opens a gate with the sockets of its doors, in the order of `gate.doors`.
    pub async fn open(&self, gate: OpenGate, doors: Vec<OwnedFd>) -> Result<(), ClientError> {
        match self.call(RequestBody::Open(gate), doors).await? {
            AnswerBody::Opened => Ok(()),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// A credential for an open run, for the doors that are not its gate's.
    pub async fn issue(&self, run: &str) -> Result<ProxyToken, ClientError> {
        let body = RequestBody::Issue(IssueCredential { run: run.to_owned() });
        match self.call(body, Vec::new()).await? {
            AnswerBody::Issued(token) => Ok(token),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// Ends a run's authority and gives what it did.
    pub async fn close(&self, run: &str) -> Result<Trace, ClientError> {
        let body = RequestBody::Close(CloseGate { run: run.to_owned() });
        match self.call(body, Vec::new()).await? {
            AnswerBody::Closed(trace) => Ok(trace),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// Puts a run that was refused before it had a gate into the audit log.
    pub async fn note(&self, note: RunNote) -> Result<(), ClientError> {
        match self.call(RequestBody::Note(note), Vec::new()).await? {
            AnswerBody::Noted => Ok(()),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// What waits for a person, oldest first.
    pub async fn approvals(&self) -> Result<Vec<PendingApproval>, ClientError> {
        match self.call(RequestBody::Approvals, Vec::new()).await? {
            AnswerBody::Approvals(waiting) => Ok(waiting),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// A person's word on one request.
    pub async fn decide_approval(&self, id: u64, approve: bool, by: &str) -> Result<(), ClientError> {
        let word = ApprovalWord { id, approve, by: by.to_owned() };
        match self.call(RequestBody::Decide(word), Vec::new()).await? {
            AnswerBody::Decided => Ok(()),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// Takes grants away. Answers how many open runs had them.
    pub async fn revoke(&self, revocation: Revocation) -> Result<u64, ClientError> {
        match self.call(RequestBody::Revoke(revocation), Vec::new()).await? {
            AnswerBody::Revoked(runs) => Ok(runs),
            _ => Err(ClientError::WrongAnswer),
        }
    }

    /// Returns when the connection is gone.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        // An error means that the reading task has ended, which is the same.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    pub fn is_lost(&self) -> bool {
        *self.lost.borrow() || self.outgoing.is_closed()
    }

    /// Sends one request and waits for its answer. Dropped midway, the request may still be carried out; a gate
    /// opened by it is closed with `close` or with the connection.
    async fn call(&self, body: RequestBody, descriptors: Vec<OwnedFd>) -> Result<AnswerBody, ClientError> {
        let (answer, answered) = oneshot::channel();
        self.outgoing.send((body, descriptors, answer)).await.map_err(|_| ClientError::Lost)?;
        match answered.await.map_err(|_| ClientError::Lost)? {
            AnswerBody::Refused { reason, message } => Err(ClientError::Refused { reason, message }),
            body => Ok(body),
        }
    }
}

/// Numbers the requests and writes them in order. Ends when the client is dropped or the connection is gone.
async fn write(
    mut sender: Sender,
    mut queue: mpsc::Receiver<Outgoing>,
    waiting: Waiting,
    mut lost: watch::Receiver<bool>,
) {
    let mut id = 0;
    loop {
        let next = tokio::select! {
            next = queue.recv() => next,
            _ = lost.wait_for(|lost| *lost) => None,
        };
        let Some((body, descriptors, answer)) = next else { break };
        id += 1;
        lock(&waiting).insert(id, answer);
        match sender.send(&Request { id, body }, &descriptors).await {
            Ok(()) => {}
            // Nothing was written: only this call fails.
            Err(FrameError::TooLarge(_) | FrameError::TooManyDescriptors(_) | FrameError::Malformed(_)) => {
                lock(&waiting).remove(&id);
            }
            Err(FrameError::Closed | FrameError::Io(_)) => break,
        }
    }
    queue.close();
    lock(&waiting).clear();
}

/// Hands each answer to its call. When the connection ends, every waiting call learns that it is lost.
async fn read(mut receiver: Receiver, waiting: Waiting, gone: watch::Sender<bool>) {
    while let Ok((answer, _)) = receiver.receive::<Answer>().await {
        if let Some(call) = lock(&waiting).remove(&answer.id) {
            // An error means that the caller no longer waits.
            let _ = call.send(answer.body);
        }
    }
    gone.send_replace(true);
    lock(&waiting).clear();
}

fn lock(waiting: &Waiting) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<AnswerBody>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
