//! The broker as a run sees it: one control connection, renewed when it is lost, and a guard for each open gate.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use freeboard_control::{Client, ClientError, OpenGate, PrepareRun, Prepared, RunNote, Trace};
use freeboard_policy::Reason;

use crate::limits::BROKER_TIMEOUT;

/// Why the broker did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("cannot reach the broker at `{socket}`")]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: ClientError,
    },
    /// The broker's decision; `message` is for operators.
    #[error("the broker refused: {reason}: {message}")]
    Refused { reason: Reason, message: String },
    #[error("the control connection to the broker failed")]
    Lost(#[source] ClientError),
    #[error("the broker did not answer in time")]
    Slow,
}

impl From<ClientError> for BrokerError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { reason, message } => Self::Refused { reason, message },
            other => Self::Lost(other),
        }
    }
}

/// Where the broker is. Connections are made on demand, inside a tokio runtime.
#[derive(Debug)]
pub struct Broker {
    socket: PathBuf,
    current: Mutex<Option<Arc<Client>>>,
}

impl Broker {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, current: Mutex::new(None) }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A live connection. A run keeps the one that it began with: its gate ends with that connection.
    pub async fn connection(&self) -> Result<Link, BrokerError> {
        let current = self.lock().clone();
        if let Some(client) = current.filter(|client| !client.is_lost()) {
            return Ok(Link { client });
        }
        let unreachable = |source| BrokerError::Unreachable { socket: self.socket.clone(), source };
        let client = Arc::new(in_time(Client::connect(&self.socket)).await?.map_err(unreachable)?);
        // Two runs may have connected at once: the later connection is kept for new runs, the earlier one lives as long
        // as its run.
        *self.lock() = Some(Arc::clone(&client));
        Ok(Link { client })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Client>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One control connection in use.
#[derive(Debug, Clone)]
pub struct Link {
    client: Arc<Client>,
}

impl Link {
    /// Floor, ports, CA and surface of these grants for this caller; opens nothing. `session`: for a session, or a call in one.
    pub async fn prepare(
        &self,
        caller: Option<&str>,
        grants: &[String],
        session: bool,
    ) -> Result<Prepared, BrokerError> {
        let run = PrepareRun { caller: caller.map(str::to_owned), grants: grants.to_vec(), session };
        Ok(in_time(self.client.prepare(run)).await??)
    }

    /// Opens the gate of a measured run. Dropped midway, the gate is closed again.
    pub async fn open(&self, gate: OpenGate, doors: Vec<OwnedFd>) -> Result<Gate, BrokerError> {
        // Made before the call: a gate that opens while nobody waits any more is closed by the guard.
        let guard = Gate { client: Some(Arc::clone(&self.client)), run: gate.run.clone() };
        in_time(self.client.open(gate, doors)).await??;
        Ok(guard)
    }

    /// Puts a run that never had a gate into the audit log.
    pub async fn note(&self, note: RunNote) -> Result<(), BrokerError> {
        Ok(in_time(self.client.note(note)).await??)
    }
}

/// An open gate. Dropping it closes it in the background.
#[derive(Debug)]
pub struct Gate {
    client: Option<Arc<Client>>,
    run: String,
}

impl Gate {
    /// Ends the run's authority and gives its trace.
    pub async fn close(mut self) -> Result<Trace, BrokerError> {
        let Some(client) = self.client.clone() else { return Ok(Trace::default()) };
        let trace = in_time(client.close(&self.run)).await?;
        self.client = None;
        Ok(trace?)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        let run = std::mem::take(&mut self.run);
        // Outside a runtime the process is ending, and the connection with it: the broker closes the gate then.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Ok(Err(error)) = in_time(client.close(&run)).await {
                    tracing::warn!(run, %error, "a gate could not be closed; it ends with its time");
                }
            });
        }
    }
}

async fn in_time<T>(call: impl Future<Output = T>) -> Result<T, BrokerError> {
    tokio::time::timeout(BROKER_TIMEOUT, call).await.map_err(|_| BrokerError::Slow)
}
