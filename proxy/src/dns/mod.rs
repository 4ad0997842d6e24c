//! DNS inside a gate: granted names get synthetic addresses of this run, everything else is refused and recorded.
//!
//! In: the gate's sockets on port 53. Out: answers from the run's grants, made here; no question is ever forwarded.

pub mod answer;
mod names;
mod refusals;
mod udp;

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_policy::{Host, Reason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::broker::{Broker, Moment};
use crate::error::Stop;
use crate::limits::{DNS_MESSAGE_BYTES, DNS_QUERIES_PER_SECOND, DNS_TCP_CONNECTIONS, DNS_TCP_IDLE};
use crate::record::{Draft, Kind};
use crate::run::RunContext;
use answer::{Question, Verdict, answer};
use refusals::Worth;

pub use names::{FIRST_V4, FIRST_V6, Issued, NAME_SERVER, NameTable};

/// Serves a gate's UDP port 53 until the run ends. Called by `accept::serve_door`.
pub async fn serve_udp(socket: OwnedFd, run: Arc<RunContext>, broker: Arc<Broker>) {
    let datagrams = match udp::Datagrams::new(socket) {
        Ok(datagrams) => datagrams,
        Err(error) => return tracing::error!(run = %run.id, %error, "the gate's DNS socket cannot be served"),
    };
    let mut pace = Pace::default();
    let mut buffer = Vec::new();
    loop {
        // What comes faster waits in the socket's buffer, and is dropped by the kernel when that is full.
        pace.wait().await;
        match datagrams.receive(&mut buffer).await {
            Ok(Some(path)) => {
                if let Some(reply) = judge(&buffer, &run, &broker)
                    && let Err(error) = datagrams.reply(&reply, &path)
                {
                    tracing::debug!(run = %run.id, %error, "a DNS reply could not be sent");
                }
            }
            Ok(None) => {}
            // An ICMP error of an earlier reply comes up here; the socket goes on.
            Err(error) => tracing::debug!(run = %run.id, %error, "a DNS question could not be received"),
        }
    }
}

/// Serves a gate's TCP port 53 until the run ends. Called by `accept::serve_door`. Dropping it closes its connections.
pub async fn serve_tcp(listener: OwnedFd, run: Arc<RunContext>, broker: Arc<Broker>) {
    let listener = std::net::TcpListener::from(listener);
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(run = %run.id, %error, "the gate's DNS listener cannot be served");
        }
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < DNS_TCP_CONNECTIONS => {
                    connections.spawn(serve_connection(stream, Arc::clone(&run), Arc::clone(&broker)));
                }
                Ok(_) => {}
                Err(error) => {
                    // Out of descriptors: the loop survives, and does not spin (ATTACKS E15).
                    tracing::warn!(run = %run.id, %error, "a DNS connection could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Messages with a length in front (RFC 1035 4.2.2), one after the other.
async fn serve_connection(mut stream: TcpStream, run: Arc<RunContext>, broker: Arc<Broker>) {
    let mut pace = Pace::default();
    let mut message = Vec::new();
    let _closed: std::io::Result<()> = async {
        stream.set_nodelay(true)?;
        loop {
            pace.wait().await;
            let length = usize::from(timeout(DNS_TCP_IDLE, stream.read_u16()).await??);
            if length > DNS_MESSAGE_BYTES {
                return Ok(());
            }
            message.resize(length, 0);
            timeout(DNS_TCP_IDLE, stream.read_exact(&mut message)).await??;
            let Some(reply) = judge(&message, &run, &broker) else { return Ok(()) };
            let Ok(length) = u16::try_from(reply.len()) else { return Ok(()) };
            let framed = [&length.to_be_bytes()[..], &reply].concat();
            timeout(DNS_TCP_IDLE, stream.write_all(&framed)).await??;
        }
    }
    .await;
}

/// Decides on one message under the policy in force now; records a refusal.
fn judge(message: &[u8], run: &Arc<RunContext>, broker: &Arc<Broker>) -> Option<Vec<u8>> {
    let now = broker.clock.now();
    let snapshot = broker.snapshot();
    let granted = |host: &Host| {
        let scope = run.scope(&snapshot, now).ok()?;
        if scope.names.contains(host) { run.account.names.issue(host) } else { None }
    };
    match answer(message, granted) {
        Verdict::Answer(reply) => Some(reply),
        Verdict::Refuse { reply, question } => {
            record(&question, run, broker, now);
            Some(reply)
        }
        Verdict::Drop => None,
    }
}

fn record(question: &Question, run: &Arc<RunContext>, broker: &Arc<Broker>, now: Moment) {
    let detail = match run.account.names.refusals.count(&question.name) {
        Worth::First => format!("type {}", question.kind),
        Worth::Repeated(count) => format!("type {}, asked {count} times by now", question.kind),
        Worth::Many(count) => format!("{count} more questions for other names by now"),
        Worth::Nothing => return,
    };
    let snapshot = broker.snapshot();
    let mut draft = Draft::new(broker, Some(run), &snapshot, Kind::Dns, "dns", "dns", now);
    draft.note(|outcome| {
        outcome.method = question.kind.as_str().into();
        outcome.host = question.name.as_str().into();
        outcome.port = 53;
    });
    draft.stopped(&Stop::with(Reason::DnsRefused, detail));
}

/// Keeps one gate from taking all of its worker's time.
#[derive(Debug)]
struct Pace {
    since: Instant,
    count: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { since: Instant::now(), count: 0 }
    }
}

impl Pace {
    async fn wait(&mut self) {
        let second = std::time::Duration::from_secs(1);
        if self.since.elapsed() >= second {
            *self = Self::default();
        }
        self.count += 1;
        if self.count > DNS_QUERIES_PER_SECOND {
            tokio::time::sleep_until(self.since + second).await;
            *self = Self { since: Instant::now(), count: 1 };
        }
    }
}
