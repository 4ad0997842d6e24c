//! Client of sandboxd's freeboard.v1: runs programs behind a measured boundary.
//!
//! ```no_run
//! # async fn example(token: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use freeboard_client::{Client, Program, Start};
//! let client = Client::new("http://127.0.0.1:8746", token)?;
//! let run = client.run(Start::of(Program::Python("print(6*7)".to_owned())).floor("container")).await?;
//! println!("{}", String::from_utf8_lossy(&run.result.unwrap_or_default().steps[0].stdout));
//! # Ok(()) }
//! ```
//!
//! An answer counts only when it is bound to its request by the request id, when its record is that of what was sent and
//! what came back, and when the measured tier is at least the one asked for.

#![forbid(unsafe_code)]

mod exchange;
mod verify;

use std::time::Duration;

pub use freeboard_wire::runs::{
    ApiSurface, CallerLimits, Ending, Executed, File, GrantSurface, Limits, LimitsResponse, Output, Priority,
    Program, Record, Requests, Run, RunResult, Standing, State, Stdin, Step, Stream, Taken, Variable,
    WatchResponse, WriteResponse,
};
use freeboard_wire::runs::{
    CancelRequest, GetRequest, GrantsRequest, GrantsResponse, LimitsRequest, ListRequest, ListResponse,
    MAX_STDIN_BYTES, StartRequest, WatchRequest, WriteRequest,
};
use serde::Serialize;

use exchange::Daemon;
pub use verify::check;

/// An exchange waits this long at most; longer waits are several exchanges.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often a Start is sent whose answer was lost; it is the same run each time.
const TRIES: u32 = 5;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing ran. The reason is one of request, permission, protocol, unsupported, isolation, environment, capacity.
    #[error("{code}: {message} (nothing ran: {reason})")]
    Refused { code: String, reason: String, message: String },
    /// No result that counts, and code may have run.
    #[error("{message} (code may have run)")]
    Failed { message: String, run: Option<Box<Run>> },
    /// The daemon did not answer. Whether it got the request is not known.
    #[error("no answer from the daemon")]
    Unanswered(#[source] std::io::Error),
    /// The URL is neither https nor http to this host.
    #[error("`{0}` is not a URL of a daemon: https, or http to this host")]
    Url(String),
}

/// A run to be started.
#[derive(Debug, Clone)]
pub struct Start {
    pub request: StartRequest,
    /// The same request with the same key is one run.
    pub key: Option<String>,
    /// How long the exchange waits for the end of the run; whole seconds.
    pub wait: Duration,
}

impl Start {
    pub fn of(program: Program) -> Self {
        let request = StartRequest {
            program,
            files: Vec::new(),
            artifacts: Vec::new(),
            environment: Vec::new(),
            grants: Vec::new(),
            minimum_isolation: String::new(),
            timeout_ms: 0,
            limits: Limits::default(),
            stdin: None,
            queue_ms: 0,
            priority: Priority::Normal,
            trace_id: String::new(),
        };
        Self { request, key: None, wait: Duration::ZERO }
    }

    /// The weakest tier that is accepted.
    #[must_use]
    pub fn floor(mut self, tier: &str) -> Self {
        tier.clone_into(&mut self.request.minimum_isolation);
        self
    }

    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }
}

/// One daemon and one caller.
#[derive(Debug)]
pub struct Client {
    daemon: Daemon,
}

impl Client {
    /// A daemon by its URL, and the caller's token, which is in no output of this type.
    ///
    /// # Errors
    /// The URL is clear text to another host, or none.
    pub fn new(url: &str, token: &str) -> Result<Self, Error> {
        Ok(Self { daemon: Daemon::new(url, token)? })
    }

    /// Starts a run, or finds the one that was started with the same key. Gives the body that was sent, too.
    pub async fn start(&self, start: &Start) -> Result<(Run, Vec<u8>), Error> {
        let sent = text(&start.request)?;
        let mut headers = vec![("prefer", format!("wait={}", start.wait.as_secs()))];
        headers.extend(start.key.iter().map(|key| ("idempotency-key", key.clone())));
        let run = self.daemon.call("Start", &sent, &headers).await?;
        Ok((run, sent))
    }

    /// Starts a run, waits for its end and checks its record. A lost answer is asked for again under the same key: what was
    /// started once is not started twice.
    pub async fn run(&self, mut start: Start) -> Result<Run, Error> {
        start.key.get_or_insert(exchange::random_hex()?);
        start.wait = LONGEST_WAIT;
        let mut left = TRIES;
        loop {
            left -= 1;
            match self.run_once(&start).await {
                Err(Error::Unanswered(_)) if left > 0 => tokio::time::sleep(PAUSE).await,
                ended => return ended,
            }
        }
    }

    async fn run_once(&self, start: &Start) -> Result<Run, Error> {
        let (mut run, sent) = self.start(start).await?;
        while run.state != State::Ended {
            self.watch(&run.run, u64::MAX, LONGEST_WAIT).await?;
            run = self.get(&run.run).await?;
        }
        check(run, &sent, &start.request.minimum_isolation)
    }

    pub async fn get(&self, run: &str) -> Result<Run, Error> {
        let asked = GetRequest { run: run.to_owned(), ..GetRequest::default() };
        self.daemon.call("Get", &text(&asked)?, &[]).await
    }

    pub async fn get_by_key(&self, key: &str) -> Result<Run, Error> {
        let asked = GetRequest { idempotency_key: key.to_owned(), ..GetRequest::default() };
        self.daemon.call("Get", &text(&asked)?, &[]).await
    }

    /// The caller's runs, newest first.
    pub async fn list(&self, state: Option<State>) -> Result<Vec<Run>, Error> {
        self.list_of(ListRequest { state, everybody: false }).await
    }

    /// The runs of all callers, newest first, for one with the scope `code:admin`.
    pub async fn list_everybody(&self, state: Option<State>) -> Result<Vec<Run>, Error> {
        self.list_of(ListRequest { state, everybody: true }).await
    }

    async fn list_of(&self, asked: ListRequest) -> Result<Vec<Run>, Error> {
        let listed: ListResponse = self.daemon.call("List", &text(&asked)?, &[]).await?;
        Ok(listed.runs)
    }

    /// What the caller may have and has; of everybody and the daemon for one with the scope `code:admin`.
    pub async fn limits(&self, everybody: bool) -> Result<LimitsResponse, Error> {
        self.daemon.call("Limits", &text(&LimitsRequest { everybody })?, &[]).await
    }

    /// Gives a run that was started with open standard input more of it, from `offset` on, which is what was given before; waits for
    /// room. A lost answer may be asked for again: nothing is taken twice. Gives the next `offset`, which is less than all of
    /// `data` only where the run has ended.
    pub async fn write(&self, run: &str, mut offset: u64, mut data: &[u8], end: bool) -> Result<u64, Error> {
        loop {
            let (piece, rest) = data.split_at(data.len().min(MAX_STDIN_BYTES));
            let asked = WriteRequest {
                run: run.to_owned(),
                offset,
                data: piece.to_vec(),
                end: end && rest.is_empty(),
                wait_ms: milliseconds(LONGEST_WAIT),
            };
            let written: WriteResponse = self.daemon.call("Write", &text(&asked)?, &[]).await?;
            let taken = usize::try_from(written.taken.saturating_sub(offset)).unwrap_or(usize::MAX);
            data = data.get(taken..).unwrap_or_default();
            offset = written.taken;
            if data.is_empty() || written.ended || written.state == State::Ended {
                return Ok(offset);
            }
        }
    }

    /// Output after a place; waits for some, or for the end.
    pub async fn watch(&self, run: &str, after: u64, wait: Duration) -> Result<WatchResponse, Error> {
        let asked = WatchRequest { run: run.to_owned(), after, wait_ms: milliseconds(wait) };
        self.daemon.call("Watch", &text(&asked)?, &[]).await
    }

    /// Hands on what the program writes, as it writes it, until it ends.
    pub async fn follow(&self, run: &str, mut write: impl FnMut(Stream, &[u8])) -> Result<(), Error> {
        let mut after = 0;
        loop {
            let watched = self.watch(run, after, LONGEST_WAIT).await?;
            for piece in &watched.output {
                write(piece.stream, &piece.data);
            }
            if watched.state == State::Ended {
                return Ok(());
            }
            after = watched.next;
        }
    }

    /// What grants open, for a caller that has them all.
    pub async fn grants(&self, grants: &[String]) -> Result<Vec<GrantSurface>, Error> {
        let asked = GrantsRequest { grants: grants.to_vec() };
        let answer: GrantsResponse = self.daemon.call("Grants", &text(&asked)?, &[]).await?;
        Ok(answer.grants)
    }

    /// Ends a run; nothing of it is left when this is done.
    pub async fn cancel(&self, run: &str) -> Result<Run, Error> {
        self.daemon.call("Cancel", &text(&CancelRequest { run: run.to_owned() })?, &[]).await
    }
}

fn text(message: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(message).map_err(|error| Error::Unanswered(error.into()))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
