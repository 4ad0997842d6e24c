//! A client that writes exactly the bytes it is told to, over TLS or in the clear.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::response::{self, Response};

/// How long a test waits for bytes before it counts as "no answer".
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection.
pub struct Wire {
    stream: Stream,
}

enum Stream {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// TLS inside of the guard's.
    Inner(Box<StreamOwned<ClientConnection, Wire>>),
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

/// What came back.
#[derive(Debug)]
pub enum Reply {
    Answer(Response),
    /// The connection was closed or reset without an answer.
    Closed(io::Error),
}

impl Reply {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answer(response) => Some(response.status),
            Self::Closed(_) => None,
        }
    }

    pub fn answer(self) -> Response {
        match self {
            Self::Answer(response) => response,
            Self::Closed(error) => panic!("the connection was closed without an answer: {error}"),
        }
    }
}

impl Wire {
    pub fn clear(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream: Stream::Clear(stream) }
    }

    /// Starts TLS with this server name and protocols; trusts only `ca_pem`.
    pub fn start_tls(self, name: &str, ca_pem: &str, protocols: &[&[u8]]) -> io::Result<Self> {
        let config = client_config(ca_pem, protocols);
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let stream = match self.stream {
            Stream::Clear(mut stream) => {
                while connection.is_handshaking() {
                    connection.complete_io(&mut stream)?;
                }
                Stream::Tls(Box::new(StreamOwned::new(connection, stream)))
            }
            outer => {
                let mut wire = Self { stream: outer };
                while connection.is_handshaking() {
                    connection.complete_io(&mut wire)?;
                }
                Stream::Inner(Box::new(StreamOwned::new(connection, wire)))
            }
        };
        Ok(Self { stream })
    }

    /// Exactly these bytes in one write.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.write_all(bytes.as_ref())?;
        self.flush()
    }

    /// Sends and waits for one answer. An answer may come before everything was written.
    pub fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Reply {
        let bytes = bytes.as_ref();
        let method =
            bytes.split(|byte| *byte == b' ').next().map(String::from_utf8_lossy).unwrap_or_default();
        let method = method.into_owned();
        // A refusal may close the connection while we are still writing.
        let _ = self.send(bytes);
        self.read_answer(&method)
    }

    pub fn read_answer(&mut self, method: &str) -> Reply {
        match response::read(self, method) {
            Ok(response) => Reply::Answer(response),
            Err(error) => Reply::Closed(error),
        }
    }

    /// Whether the other side has closed, with nothing more to read.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }

    /// Reads until the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.read_to_end(&mut bytes);
        bytes
    }

    /// Every byte of one answer that can be read, whether it is whole or not.
    pub fn bytes_of_answer(&mut self, method: &str) -> Vec<u8> {
        let mut tee = Tee { inner: self, seen: Vec::new() };
        let _ = response::read(&mut tee, method);
        tee.seen
    }

    pub fn set_patience(&self, patience: Duration) {
        self.tcp().set_read_timeout(Some(patience)).unwrap();
    }

    pub fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Clear(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
            Stream::Inner(stream) => stream.sock.tcp(),
        }
    }

    /// The protocol that TLS agreed on.
    pub fn protocol(&self) -> Option<Vec<u8>> {
        match &self.stream {
            Stream::Clear(_) => None,
            Stream::Tls(stream) => stream.conn.alpn_protocol().map(<[u8]>::to_vec),
            Stream::Inner(stream) => stream.conn.alpn_protocol().map(<[u8]>::to_vec),
        }
    }
}

pub fn client_config(ca_pem: &str, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

struct Tee<'a> {
    inner: &'a mut Wire,
    seen: Vec<u8>,
}

impl Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.seen.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Clear(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
            Stream::Inner(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Clear(stream) => stream.write(buffer),
            Stream::Tls(stream) => stream.write(buffer),
            Stream::Inner(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Clear(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
            Stream::Inner(stream) => stream.flush(),
        }
    }
}
