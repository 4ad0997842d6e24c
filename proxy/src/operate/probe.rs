//! Proves that the broker does both of its jobs: one request is let through and one is refused, and the log has both.
//!
//! The probe has a policy and a run of its own beside those in force, and shares what has to work: CA, pipeline, connections to
//! an upstream with verified TLS, audit log. Its upstream is a listener on loopback for as long as the probe takes. Its records
//! are those of the caller `freeboard-readiness`; in the metrics it does not count.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use freeboard_control::{Evidence, OpenGate};
use freeboard_policy::{Host, Policy, Reason, SourceFile, Tier};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::accept::http1::Guest;
use crate::accept::proxy;
use crate::accept::worker::Workers;
use crate::broker::{Broker, Snapshot};
use crate::credential::Store;
use crate::http1::{Socket, Stream};
use crate::limits::{AUDIT_STOP, BUFFER_BYTES, LIVE_PATIENCE, PROBE_PATIENCE};
use crate::pipeline::Client;
use crate::run::RunContext;
use crate::tls::Authority;
use crate::upstream::dial::{DialSettings, Dialler};
use crate::upstream::trust::Trust;

/// Nothing, or what does not work.
pub(super) type Probed = Result<(), String>;

/// In no policy's reach: `.invalid` never resolves (RFC 6761 6.4).
const HOST: &str = "readiness.invalid";
const CALLER: &str = "freeboard-readiness";
const RUN: &str = "00000000000000000000000000000000";

pub(super) async fn run(broker: &Broker, workers: &Workers) -> Probed {
    timeout(LIVE_PATIENCE, workers.answer()).await.map_err(|_| "a worker thread takes no work")?;
    if !broker.recorder.state().writable {
        return Err("the audit log cannot be written".to_owned());
    }
    let probe = timeout(PROBE_PATIENCE, probe(broker)).await;
    probe.map_err(|_| format!("the probe took longer than {} s", PROBE_PATIENCE.as_secs()))??;
    let recorder = broker.recorder.clone();
    // It waits for the writer's thread.
    match tokio::task::spawn_blocking(move || recorder.flush(AUDIT_STOP)).await {
        Ok(true) => Ok(()),
        _ => Err("the records of the probe are not in the audit log".to_owned()),
    }
}

async fn probe(broker: &Broker) -> Probed {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let host = Host::parse(HOST).map_err(|error| failed("the probe's host", &error))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.map_err(|error| failed("no listener for the probe", &error))?;
    let address = listener.local_addr().map_err(|error| failed("no listener for the probe", &error))?;
    let client = client(broker, &host, address)?;
    let (allowed, refused) = tokio::select! {
        asked = ask_both(&client, address.port()) => asked?,
        ended = upstream(&broker.authority, &host, &listener) => return Err(ended),
    };
    if !(allowed.starts_with("HTTP/1.1 200 ") && allowed.ends_with("\r\n\r\nok")) {
        return Err(failed("an allowed request was not served", &first_line(&allowed)));
    }
    let reason = format!("\"error\":\"{}\"", Reason::NoRule.code());
    if !(refused.starts_with("HTTP/1.1 403 ") && refused.contains(&reason)) {
        return Err(failed("a request without a rule was not refused", &first_line(&refused)));
    }
    Ok(())
}

fn first_line(answer: &str) -> String {
    match answer.lines().next() {
        Some(line) => format!("`{}`", line.escape_default()),
        None => "no answer".to_owned(),
    }
}

/// A run whose only grant is one route of the probe's upstream.
fn client(broker: &Broker, host: &Host, address: SocketAddr) -> Result<Client, String> {
    let policy = format!(
        "[api.readiness]\norigins = [\"https://{HOST}:{port}\"]\naddresses = [\"{ip}/32\"]\n\n\
         [grant.readiness]\ncallers = [\"{CALLER}\"]\n[[grant.readiness.allow]]\napi = \"readiness\"\nroutes = [\"GET /allowed\"]\n",
        port = address.port(),
        ip = address.ip(),
    );
    let policy = Policy::load(&[SourceFile::new("readiness.toml", policy)]);
    let policy = policy.map_err(|problems| freeboard_policy::render_all(&problems))?.policy;
    let anchor = CertificateDer::from_pem_slice(broker.authority.ca().anchor_pem().as_bytes());
    let mut roots = rustls::RootCertStore::empty();
    let trusted = anchor.is_ok_and(|anchor| roots.add(anchor).is_ok());
    if !trusted {
        return Err("the interception CA is no root for an upstream".to_owned());
    }
    let hosts = HashMap::from([(host.clone(), vec![address.ip()])]);
    let settings = DialSettings { hosts, ..Default::default() };
    let dialler = Dialler::new(settings, Trust::with_roots(roots));
    let snapshot = Snapshot::new(policy, None, Store::default());
    let own = Broker::new(snapshot, Arc::clone(&broker.authority), dialler, broker.recorder.clone());
    let gate = OpenGate {
        run: RUN.to_owned(),
        caller: Some(CALLER.to_owned()),
        grants: vec!["readiness".to_owned()],
        evidence: Evidence { provider: "readiness".to_owned(), tier: Tier::Process, facts: Vec::new() },
        expires_unix_ms: u64::MAX,
        trace_id: None,
        session: None,
        doors: Vec::new(),
    };
    let own = Arc::new(own);
    let run = RunContext::open(&gate, None, &own).map_err(|stop| format!("the probe's run: {stop}"))?;
    Ok(Client { broker: own, run, door: "streams" })
}

/// The answers to the request that is allowed and to the one that is not.
async fn ask_both(client: &Client, port: u16) -> Result<(String, String), String> {
    Ok((ask(client, port, "/allowed").await?, ask(client, port, "/refused").await?))
}

async fn ask(client: &Client, port: u16, path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("the probe cannot be sent: {error}");
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    let guest = Guest::from(Stream::from(Socket::from(theirs)));
    let exchange = async {
        let request = format!(
            "GET https://{HOST}:{port}{path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n"
        );
        ours.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        let bound = u64::try_from(BUFFER_BYTES).unwrap_or(u64::MAX);
        (&mut ours).take(bound).read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let ((), answer) = tokio::join!(proxy::serve_connection(client, guest), exchange);
    answer.map_err(failed)
}

/// Answers every request with `ok` until dropped; what it ends with is what went wrong.
async fn upstream(authority: &Authority, host: &Host, listener: &TcpListener) -> String {
    let config = match authority.server_config(host) {
        Ok(config) => config,
        Err(reason) => return format!("no certificate can be made: {reason}"),
    };
    let acceptor = TlsAcceptor::from(config);
    loop {
        match listener.accept().await {
            // One that breaks is seen by who asked.
            Ok((stream, _)) => {
                let _ = serve_one(&acceptor, stream).await;
            }
            Err(error) => return format!("the probe's upstream: {error}"),
        }
    }
}

async fn serve_one(acceptor: &TlsAcceptor, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") && seen.len() < BUFFER_BYTES {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        seen.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await?;
    stream.shutdown().await
}
