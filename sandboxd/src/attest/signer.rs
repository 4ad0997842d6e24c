//! The process that holds the key, and the line to it: a Unix socket on which one statement goes in and one envelope comes out.
//! It signs nothing but statements about runs, for the users that it was told, and does nothing else.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freeboard_wire::runs::{Envelope, Run};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::envelope::{seal, seal_quoted};
use super::key::PrivateKey;
use super::statement::{Statement, StatementError};
use super::tpm::Quoter;
use crate::limits::{ATTEST_TIMEOUT, MAX_ATTEST_CONNECTIONS, MAX_STATEMENT_BYTES};

/// Bytes of an envelope at most: the statement in base64, and a signature.
const MAX_ENVELOPE_BYTES: usize = MAX_STATEMENT_BYTES * 2;

/// Why there is no signature.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    #[error("the signing process at `{}` does not answer", .0.display())]
    Socket(PathBuf, #[source] io::Error),
    #[error("it signs nothing of this kind")]
    Refused,
    #[error(transparent)]
    Statement(#[from] StatementError),
    #[error("what it answered is no envelope")]
    Answer(#[source] serde_json::Error),
}

/// The daemon's line to it.
#[derive(Debug, Clone)]
pub struct Signer {
    socket: PathBuf,
}

impl Signer {
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Has the record of a run signed.
    pub async fn sign(&self, run: &Run) -> Result<Envelope, SignerError> {
        let payload = Statement::of(run)?.to_json()?;
        let failed = |error| SignerError::Socket(self.socket.clone(), error);
        let asked = tokio::time::timeout(ATTEST_TIMEOUT, ask(&self.socket, &payload)).await;
        let answer = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
        if answer.is_empty() {
            return Err(SignerError::Refused);
        }
        let envelope: Envelope = serde_json::from_slice(&answer).map_err(SignerError::Answer)?;
        if envelope.payload == payload { Ok(envelope) } else { Err(SignerError::Refused) }
    }
}

async fn ask(socket: &Path, payload: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).await?;
    send(&mut stream, payload).await?;
    receive(&mut stream, MAX_ENVELOPE_BYTES).await
}

/// Four bytes of length, big-endian, then as many.
async fn send(stream: &mut UnixStream, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(body).await
}

async fn receive(stream: &mut UnixStream, most: usize) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await? as usize;
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// What it signs with.
#[derive(Debug)]
struct Signs {
    key: PrivateKey,
    tpm: Option<Quoter>,
}

/// The process itself, listening.
#[derive(Debug)]
pub struct Serving {
    listener: UnixListener,
    signs: Arc<Signs>,
    users: Arc<[u32]>,
}

impl Serving {
    /// Listens at a path for processes of these users.
    pub fn at(socket: &Path, key: PrivateKey, tpm: Option<Quoter>, users: &[u32]) -> io::Result<Self> {
        // Left by one that was killed. Anything else at this place is none of ours.
        if std::fs::symlink_metadata(socket).is_ok_and(|there| there.file_type().is_socket()) {
            std::fs::remove_file(socket)?;
        }
        let listener = UnixListener::bind(socket)?;
        // Who may connect is decided by the peer's user; the mode only has to let those in that are not this one.
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
        Ok(Self { listener, signs: Arc::new(Signs { key, tpm }), users: users.into() })
    }

    /// Serves until it is dropped, or until no connection can be accepted any more.
    pub async fn serve(self) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(MAX_ATTEST_CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = self.listener.accept().await?;
            // SECURITY: a signature says that sandboxd measured. Guarded by another_users_process_gets_no_signature.
            let user = stream.peer_cred()?.uid();
            if !self.users.contains(&user) {
                tracing::warn!(user, "a process of another user asked for a signature and got none");
                continue;
            }
            let signs = Arc::clone(&self.signs);
            tokio::spawn(async move {
                if let Ok(Err(error)) = tokio::time::timeout(ATTEST_TIMEOUT, one(stream, &signs)).await {
                    tracing::debug!(%error, "a connection ended with an error");
                }
                drop(place);
            });
        }
    }
}

async fn one(mut stream: UnixStream, signs: &Signs) -> io::Result<()> {
    let payload = receive(&mut stream, MAX_STATEMENT_BYTES).await?;
    let answer = match signs.envelope(&payload).await {
        Ok(envelope) => serde_json::to_vec(&envelope)?,
        Err(error) => {
            tracing::warn!(error, "what was to be signed is not signed");
            Vec::new()
        }
    };
    send(&mut stream, &answer).await
}

impl Signs {
    /// One that was to have a quote is not made without: it would look like one of a host that has no TPM.
    async fn envelope(&self, payload: &[u8]) -> Result<Envelope, Box<dyn std::error::Error + Send + Sync>> {
        Statement::parse(payload)?;
        match &self.tpm {
            Some(tpm) => Ok(seal_quoted(&self.key, payload, tpm).await?),
            None => Ok(seal(&self.key, payload)),
        }
    }
}
