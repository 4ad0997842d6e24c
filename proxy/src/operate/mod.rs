//! What an operator's tools ask: `/metrics`, `/livez` and `/readyz` on an address of the host.
//!
//! In: GET requests, read by the same strict reader as a guest's. Out: numbers, or whether the broker works. Nothing is changed
//! here, and nothing of a guest or of a secret is told.

mod probe;

use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::accept::http1::{Guest, Next, next};
use crate::accept::worker::Workers;
use crate::broker::Broker;
use crate::http1::{Socket, Stream};
use crate::limits::{CLIENT_WRITE_TIMEOUT, LINGER_TIMEOUT, LIVE_PATIENCE, METRICS_CONNECTIONS, PROBE_KEPT};
use crate::metrics::page::{CONTENT_TYPE, Process, page};
use probe::Probed;

/// What the answers are made from.
#[derive(Debug)]
pub struct Operate {
    broker: Arc<Broker>,
    workers: Arc<Workers>,
    started_unix: u64,
    /// The last answer of the probe: asking often must not fill the audit log.
    last: tokio::sync::Mutex<Option<(Instant, Probed)>>,
}

/// One answer.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn text(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }
}

impl Operate {
    pub fn new(broker: &Arc<Broker>, workers: &Arc<Workers>) -> Self {
        Self {
            broker: Arc::clone(broker),
            workers: Arc::clone(workers),
            started_unix: broker.clock.now().unix_ms / 1000,
            last: tokio::sync::Mutex::default(),
        }
    }

    /// Serves until dropped, also while the broker drains.
    pub async fn serve(self, listener: TcpListener) {
        let Some(listener) = crate::accept::listener(listener) else { return };
        let operate = Arc::new(self);
        let room = Arc::new(Semaphore::new(METRICS_CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let socket = crate::accept::accept_next(&listener, &operate.broker.metrics).await;
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
            let operate = Arc::clone(&operate);
            connections.spawn(async move {
                operate.connection(Guest::from(Stream::from(Socket::from(socket)))).await;
                drop(permit);
            });
        }
    }

    /// One request, one answer. Dropping it closes the connection.
    async fn connection(&self, mut guest: Guest) {
        // Not the broker's: an operator looks on while it drains.
        let never = tokio_util::sync::CancellationToken::new();
        let mut never = pin!(never.cancelled());
        let answer = match next(&self.broker, never.as_mut(), &mut guest).await {
            Next::Nothing => return,
            Next::Head(_, Err(_)) => Answer::text("400 Bad Request", "this is no HTTP request\n"),
            Next::Head(_, Ok(head)) => {
                let path = head.target.as_ref().map_or("", |target| target.wire());
                self.answer(&head.method, path).await
            }
        };
        let Answer { status, kind, body } = answer;
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        // Who asked may be gone.
        let _ = guest.stream.write_all(answer.as_bytes(), CLIENT_WRITE_TIMEOUT).await;
        guest.stream.shutdown(LINGER_TIMEOUT).await;
    }

    async fn answer(&self, method: &str, path: &str) -> Answer {
        match (method, path) {
            ("GET", "/metrics") => {
                let body = page(&self.broker, &Process::read(self.started_unix));
                Answer { status: "200 OK", kind: CONTENT_TYPE, body }
            }
            ("GET", "/livez") => self.live().await,
            ("GET", "/readyz") => self.ready().await,
            ("GET", _) => Answer::text("404 Not Found", "/metrics, /livez and /readyz are served\n"),
            _ => Answer::text("405 Method Not Allowed", "only GET is answered\n"),
        }
    }

    /// Every worker thread still takes work; whoever asks is answered by the main thread.
    async fn live(&self) -> Answer {
        match timeout(LIVE_PATIENCE, self.workers.answer()).await {
            Ok(()) => Answer::text("200 OK", "live\n"),
            Err(_) => Answer::text("503 Service Unavailable", "a worker thread takes no work\n"),
        }
    }

    async fn ready(&self) -> Answer {
        if self.broker.draining.is_cancelled() {
            return Answer::text("503 Service Unavailable", "the broker is shutting down\n");
        }
        // Whoever comes while a probe runs waits for it and gets its answer.
        let mut last = self.last.lock().await;
        let probed = match &*last {
            Some((when, probed)) if when.elapsed() < PROBE_KEPT => probed.clone(),
            _ => {
                let probed = probe::run(&self.broker, &self.workers).await;
                let metrics = &self.broker.metrics;
                let count = if probed.is_ok() { &metrics.probes_ready } else { &metrics.probes_unready };
                count.one_more();
                *last = Some((Instant::now(), probed.clone()));
                probed
            }
        };
        match probed {
            Ok(()) => Answer::text(
                "200 OK",
                "ready: one request was allowed, one refused, both are in the audit log\n",
            ),
            Err(problem) => Answer::text("503 Service Unavailable", format!("not ready: {problem}\n")),
        }
    }
}
