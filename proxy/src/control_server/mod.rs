//! sandboxd's way in: Prepare, Open, Close and Note over a Unix socket.
//!
//! In: connections of root, of the broker's own user or of a configured one. Out: gates on the workers. A gate is owned
//! by the connection that opened it and ends with it, so that a dead sandboxd leaves no run with authority.

mod gates;
mod prepare;
mod revoke;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_control::{
    Answer, AnswerBody, ApprovalWord, Connection, FrameError, Request, RequestBody, RunNote, Sender,
};
use freeboard_policy::Reason;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use crate::accept::worker::Workers;
use crate::broker::Broker;
use crate::limits;
use crate::record::run_refused;

pub use gates::GateCount;

/// What every control connection uses.
#[derive(Debug)]
pub struct ControlServer {
    pub broker: Arc<Broker>,
    pub workers: Arc<Workers>,
    /// User ids that may connect.
    pub uids: Vec<u32>,
    pub gates: GateCount,
}

impl ControlServer {
    /// Accepts until dropped. Each connection is a task of its own; dropping this future ends them, and with them their
    /// gates.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        let room = Arc::new(Semaphore::new(limits::CONTROL_CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors or memory: what holds them may let go (ATTACKS E15).
                    tracing::warn!(%error, "no control connection could be accepted");
                    tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if !self.may_connect(&stream) {
                continue;
            }
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                tracing::warn!("a control connection was refused: too many are open");
                continue;
            };
            let server = Arc::clone(&self);
            connections.spawn(async move {
                server.connection(stream).await;
                drop(permit);
            });
        }
    }

    /// SECURITY: whoever connects can open gates for any caller; the socket's mode is the first fence, the kernel's word
    /// on who the peer is the second. Guarded by `refuses_a_peer_of_another_user`.
    fn may_connect(&self, stream: &UnixStream) -> bool {
        match stream.peer_cred() {
            Ok(peer) if self.uids.contains(&peer.uid()) => true,
            Ok(peer) => {
                tracing::warn!(
                    uid = peer.uid(),
                    "a control connection was refused: this user may not connect"
                );
                false
            }
            Err(error) => {
                tracing::warn!(%error, "a control connection was refused: the peer is not known");
                false
            }
        }
    }

    /// Requests are carried out in order. Only the answer to Close may come later than answers to what was asked after it: it
    /// waits for the connections of its run, and no other run waits for those.
    async fn connection(&self, stream: UnixStream) {
        let (sender, mut receiver) = Connection::new(stream).split();
        let (answers, answered) = mpsc::channel(limits::CONTROL_ANSWERS);
        let asked = async {
            let mut gates = gates::Gates::new(self);
            loop {
                let (Request { id, body }, descriptors) = match receiver.receive().await {
                    Ok(received) => received,
                    Err(error) => break error,
                };
                let answer = match self.answer(body, descriptors, &mut gates) {
                    Ok(body) => Owed::Now(Answer { id, body }),
                    Err(closing) => Owed::Closing(id, closing),
                };
                // Its reader is gone only when the connection is.
                if answers.send(answer).await.is_err() {
                    break FrameError::Closed;
                }
            }
        };
        let error = tokio::select! {
            error = asked => error,
            error = send_answers(sender, answered) => error,
        };
        match error {
            FrameError::Closed => tracing::debug!("control connection closed"),
            error => tracing::warn!(%error, "control connection ended"),
        }
    }

    /// The answer, or what has to settle before there is one.
    fn answer(
        &self,
        body: RequestBody,
        descriptors: Vec<OwnedFd>,
        gates: &mut gates::Gates<'_>,
    ) -> Result<AnswerBody, gates::Closing> {
        match body {
            RequestBody::Prepare(run) => Ok(prepare::prepare(&self.broker, &run)),
            RequestBody::Open(gate) => Ok(gates.open(&gate, descriptors)),
            RequestBody::Close(gate) => match gates.close(&gate.run) {
                Some(closing) => Err(closing),
                None => Ok(refused(Reason::RunEnded, "no gate of this run was opened on this connection")),
            },
            RequestBody::Issue(asked) => Ok(gates.issue(&asked.run)),
            RequestBody::Note(note) => Ok(self.note(note)),
            RequestBody::Approvals => Ok(AnswerBody::Approvals(self.broker.approvals.list())),
            RequestBody::Decide(word) => Ok(self.decide(&word)),
            RequestBody::Revoke(revocation) => Ok(revoke::revoke(&self.broker, &revocation)),
        }
    }

    fn decide(&self, word: &ApprovalWord) -> AnswerBody {
        match self.broker.approvals.decide(word.id, word.approve, &word.by) {
            Ok(()) => AnswerBody::Decided,
            Err(error) => refused(Reason::ApprovalDenied, error.to_string()),
        }
    }

    fn note(&self, note: RunNote) -> AnswerBody {
        let policy = crate::reload::identity(&self.broker.snapshot());
        let (run, event) = run_refused(note);
        match self.broker.recorder.event(Some(run), Some(policy), event) {
            Ok(()) => AnswerBody::Noted,
            Err(reason) => refused(reason, "the audit log cannot be written"),
        }
    }
}

/// An answer that its request waits for.
#[derive(Debug)]
enum Owed {
    Now(Answer),
    Closing(u64, gates::Closing),
}

/// Sends every answer when it is there, until the connection is gone.
async fn send_answers(mut sender: Sender, mut owed: mpsc::Receiver<Owed>) -> FrameError {
    // At most one for each gate of the connection, and gates are limited.
    let mut closing = FuturesUnordered::new();
    loop {
        let answer = tokio::select! {
            owed = owed.recv() => match owed {
                Some(Owed::Now(answer)) => answer,
                Some(Owed::Closing(id, gate)) => {
                    closing.push(async move { Answer { id, body: gate.settled().await } });
                    continue;
                }
                None => return FrameError::Closed,
            },
            Some(answer) = closing.next(), if !closing.is_empty() => answer,
        };
        if let Err(error) = sender.send(&answer, &[]).await {
            return error;
        }
    }
}

/// Nothing was done.
fn refused(reason: Reason, message: impl Into<String>) -> AnswerBody {
    AnswerBody::Refused { reason, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{lab, ok};

    #[tokio::test]
    async fn an_answer_that_has_to_settle_holds_up_no_other() {
        let lab = lab(|_| ok("", "")).await;
        let connection = lab.client.run.admit().unwrap();
        let (broker, sandboxd) = UnixStream::pair().unwrap();
        let (owe, owed) = mpsc::channel(limits::CONTROL_ANSWERS);
        let sending = tokio::spawn(send_answers(Connection::new(broker).split().0, owed));
        let sandboxd = Connection::new(sandboxd);
        let run = Arc::clone(&lab.client.run);
        owe.send(Owed::Closing(1, gates::Closing { run })).await.unwrap();
        owe.send(Owed::Now(Answer { id: 2, body: AnswerBody::Noted })).await.unwrap();
        let (first, _) = sandboxd.receive::<Answer>().await.unwrap();
        assert_eq!(first.id, 2, "{first:?}");
        drop(connection);
        let (second, _) = sandboxd.receive::<Answer>().await.unwrap();
        assert!(matches!(second, Answer { id: 1, body: AnswerBody::Closed(_) }), "{second:?}");
        drop(owe);
        assert!(matches!(sending.await.unwrap(), FrameError::Closed));
    }
}
