//! sandboxd's way in: Prepare, Open, Close and Note over a Unix socket.
//!
//! In: connections of root, of the broker's own user or of a configured one. Out: gates on the workers. A gate is owned
//! by the connection that opened it and ends with it, so that a dead sandboxd leaves no run with authority.

mod gates;
mod prepare;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_control::{Answer, AnswerBody, Connection, FrameError, Request, RequestBody, RunNote};
use freeboard_policy::Reason;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

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

    async fn connection(&self, stream: UnixStream) {
        let (mut sender, mut receiver) = Connection::new(stream).split();
        let mut gates = gates::Gates::new(self);
        let error = loop {
            let (request, descriptors) = match receiver.receive::<Request>().await {
                Ok(received) => received,
                Err(error) => break error,
            };
            let body = self.answer(request.body, descriptors, &mut gates).await;
            if let Err(error) = sender.send(&Answer { id: request.id, body }, &[]).await {
                break error;
            }
        };
        match error {
            FrameError::Closed => tracing::debug!("control connection closed"),
            error => tracing::warn!(%error, "control connection ended"),
        }
    }

    async fn answer(
        &self,
        body: RequestBody,
        descriptors: Vec<OwnedFd>,
        gates: &mut gates::Gates<'_>,
    ) -> AnswerBody {
        match body {
            RequestBody::Prepare(run) => prepare::prepare(&self.broker, &run),
            RequestBody::Open(gate) => gates.open(&gate, descriptors),
            RequestBody::Close(gate) => gates.close(&gate.run).await,
            RequestBody::Note(note) => self.note(note),
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

/// Nothing was done.
fn refused(reason: Reason, message: impl Into<String>) -> AnswerBody {
    AnswerBody::Refused { reason, message: message.into() }
}
