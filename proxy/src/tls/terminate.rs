//! Reads the ClientHello, then ends TLS with the leaf for its server name.
//!
//! The hello is read whole, however it is cut into records. Nothing is minted before the decision, and for refused
//! names only within the run's budget.

use std::io;
use std::sync::Arc;

use freeboard_policy::{Host, Reason};
use rustls::server::Acceptor;
use rustls::{AlertDescription, ServerConfig};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use crate::error::Stop;
use crate::http1::Socket;
use crate::limits;

/// A ClientHello that was read and not answered yet.
pub struct Hello {
    start: StartHandshake<Socket>,
    deadline: Instant,
    /// The server name that it asks for.
    pub server_name: Option<Host>,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Hello {
    /// Reads a ClientHello. Dropping it midway closes the connection.
    ///
    /// # Errors
    /// `tls_refused` for what is not TLS 1.2 or newer, `client_timeout`, `client_closed`.
    pub async fn read(socket: Socket) -> Result<Self, Stop> {
        let deadline = Instant::now() + limits::HANDSHAKE_TIMEOUT;
        let acceptor = LazyConfigAcceptor::new(Acceptor::default(), socket);
        let start = match timeout_at(deadline, acceptor).await {
            Err(_) => return Err(Stop::new(Reason::ClientTimeout, "no ClientHello in time")),
            Ok(Err(error)) => return Err(stop(&error)),
            Ok(Ok(start)) => start,
        };
        let server_name = match start.client_hello().server_name() {
            None => None,
            Some(name) => Some(
                Host::parse(name)
                    .map_err(|error| Stop::with(Reason::TlsRefused, format!("server name: {error}")))?,
            ),
        };
        Ok(Self { start, deadline, server_name })
    }

    /// As `read`, of a hello that may be sent on: it can be taken back with `into_unread`.
    ///
    /// # Errors
    /// As for `read`.
    pub async fn read_recorded(mut socket: Socket) -> Result<Self, Stop> {
        socket.record();
        Self::read(socket).await
    }

    /// The socket as it was before the hello was read, and the bytes of it.
    pub fn into_unread(self) -> (Socket, Vec<u8>) {
        let mut socket = self.start.io;
        let bytes = socket.rewind();
        (socket, bytes)
    }

    /// Ends TLS with this configuration, once one of the `places` is free. Boxed: it weighs more than all else that an idle connection holds beside the
    /// buffers of rustls, and every future that it passes would carry its size.
    ///
    /// # Errors
    /// `leaf_rejected` when the guest does not trust our CA; `tls_refused`, `client_timeout`, `client_closed`.
    pub async fn complete(
        self,
        config: Arc<ServerConfig>,
        places: &Semaphore,
    ) -> Result<Box<TlsStream<Socket>>, Stop> {
        let Self { start, deadline, .. } = self;
        let completed = async {
            // Nobody closes it: an error cannot be.
            let _place = places.acquire().await;
            start.into_stream(config).await
        };
        match timeout_at(deadline, completed).await {
            Err(_) => Err(Stop::new(Reason::ClientTimeout, "the TLS handshake did not end in time")),
            Ok(Err(error)) => Err(stop(&error)),
            Ok(Ok(stream)) => Ok(Box::new(stream)),
        }
    }

    /// Ends the handshake with an alert.
    pub async fn refuse(self) {
        refuse_hello(self.start.io).await;
    }
}

/// Ends a handshake with an alert: `access_denied` (RFC 8446 6.2).
pub async fn refuse_hello(mut socket: Socket) {
    const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
    let farewell = async {
        // The guest may be gone already: there is nobody left to tell.
        let _ = socket.write_all(&ACCESS_DENIED).await;
        let _ = socket.shutdown().await;
    };
    let _ = timeout(limits::LINGER_TIMEOUT, farewell).await;
}

/// What clients say that do not accept a certificate (RFC 8446 6.2).
fn rejects_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
    )
}

fn stop(error: &io::Error) -> Stop {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls @ rustls::Error::AlertReceived(alert)) if rejects_certificate(*alert) => {
            Stop::with(Reason::LeafRejected, tls.to_string())
        }
        Some(tls) => Stop::with(Reason::TlsRefused, tls.to_string()),
        None if error.kind() == io::ErrorKind::InvalidData => {
            Stop::with(Reason::TlsRefused, error.to_string())
        }
        None => Stop::with(Reason::ClientClosed, format!("TLS handshake: {error}")),
    }
}
