//! Neighbours for tests: a provider that runs nothing, a broker that answers from a table, and a plain HTTP client.

#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    reason = "shared by test files, each of which uses a part"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may panic like the tests themselves"
)]

mod host;
mod session;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freeboard_control::{
    Answer, AnswerBody, Connection, Door, Evidence, Fact, Prepared, Request, RequestBody, SurfaceApi, Trace,
};
use freeboard_policy::{Reason, Tier};
use freeboard_sandboxd::admission::{Admission, Limits, Own};
use freeboard_sandboxd::api::{App, Doorkeeper, serve, tell};
use freeboard_sandboxd::callers::{self, Callers, Grants, Token};
use freeboard_sandboxd::control_client::Broker;
use freeboard_sandboxd::job::{Ending, Outcome, OutputSink, StepOutcome};
use freeboard_sandboxd::launch::Launcher;
use freeboard_sandboxd::provider::{
    CreateError, Description, Plan, Provider, ReadBack, RunFailure, Sandbox, Session,
};
use freeboard_sandboxd::runs::Runs;
use freeboard_sandboxd::session::{Sessions, Settings};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};

pub const ID: &str = "0123456789abcdef0123456789abcdef";

/// What a fake sandbox does when it is released.
#[derive(Debug, Clone)]
pub enum Act {
    Answer(Outcome),
    Hang,
    Lose,
    Panic,
    /// Cannot be created.
    NoHost,
}

/// How often each step was reached.
#[derive(Debug, Default)]
pub struct Counts {
    pub created: AtomicU32,
    pub released: AtomicU32,
    pub destroyed: AtomicU32,
    pub suspended: AtomicU32,
    pub cancelled: AtomicU32,
    /// What the next read-back of a session says instead of "as it was".
    pub read_back: Mutex<Option<ReadBack>>,
}

impl Counts {
    pub fn all(&self) -> (u32, u32, u32) {
        let read = |count: &AtomicU32| count.load(Ordering::SeqCst);
        (read(&self.created), read(&self.released), read(&self.destroyed))
    }
}

#[derive(Debug)]
pub struct Fake {
    pub description: Description,
    pub measured: Tier,
    pub act: Act,
    pub counts: Arc<Counts>,
    pub plans: Arc<Mutex<Vec<Plan>>>,
}

pub fn answered(stdout: &str, exit_code: i32) -> Act {
    let step = StepOutcome { stdout: stdout.into(), exit_code, ..StepOutcome::default() };
    Act::Answer(Outcome {
        steps: vec![step],
        ending: Ending::Completed,
        detail: String::new(),
        artifacts: Vec::new(),
        artifacts_truncated: false,
    })
}

impl Fake {
    pub fn new(act: Act) -> Self {
        let description = Description {
            name: "fake",
            tier: Tier::Container,
            weaker: None,
            environment: "fake:1".into(),
            supports_javascript: true,
            supports_project: true,
            supports_grants: true,
            supports_sessions: false,
            lowers_memory: true,
            languages: vec!["javascript".into(), "python".into()],
            default_timeout: Duration::from_secs(5),
            max_timeout: Duration::from_secs(30),
            memory_mib: 256,
            cpus: 1.0,
            pids: 64,
            disk_mib: 16,
        };
        Self { description, measured: Tier::Container, act, counts: Arc::default(), plans: Arc::default() }
    }
}

impl Provider for Fake {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        Box::pin(async move {
            if matches!(self.act, Act::NoHost) {
                return Err(CreateError::Host { what: "no such thing".into(), help: "get one".into() });
            }
            self.plans.lock().unwrap().push(plan.clone());
            self.counts.created.fetch_add(1, Ordering::SeqCst);
            let sandbox = FakeSandbox {
                measured: self.measured,
                act: self.act.clone(),
                timeout: plan.job.timeout,
                counts: Arc::clone(&self.counts),
            };
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }
}

struct FakeSandbox {
    measured: Tier,
    act: Act,
    timeout: Duration,
    counts: Arc<Counts>,
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        self.counts.destroyed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Sandbox for FakeSandbox {
    fn measure(&mut self) -> BoxFuture<'_, Result<Evidence, CreateError>> {
        let met = self.measured >= Tier::Container;
        let facts = vec![Fact { name: "seccomp_mode".into(), value: "2".into(), met }];
        let evidence = Evidence { provider: "fake".into(), tier: self.measured, facts };
        Box::pin(async move { Ok(evidence) })
    }

    fn take_doors(&mut self) -> Vec<(Door, OwnedFd)> {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        vec![(Door::Tcp { port: 443 }, socket.into())]
    }

    fn into_session(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Session>, CreateError>> {
        let session = session::FakeSession { act: self.act.clone(), counts: Arc::clone(&self.counts) };
        // The session takes over what is destroyed at its end.
        self.counts.destroyed.fetch_sub(1, Ordering::SeqCst);
        Box::pin(async move { Ok(Box::new(session) as Box<dyn Session>) })
    }

    fn release(
        self: Box<Self>,
        output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'static, Result<Outcome, RunFailure>> {
        Box::pin(async move {
            self.counts.released.fetch_add(1, Ordering::SeqCst);
            match self.act.clone() {
                Act::Answer(outcome) => {
                    for step in &outcome.steps {
                        output.stdout(&step.stdout);
                        output.stderr(&step.stderr);
                    }
                    Ok(outcome)
                }
                Act::Lose => Err(RunFailure::Lost("the secret inner reason".into())),
                Act::Panic => panic!("a fault of ours"),
                Act::Hang | Act::NoHost => {
                    tokio::time::sleep(self.timeout).await;
                    Ok(Outcome {
                        steps: vec![StepOutcome {
                            timed_out: true,
                            exit_code: 124,
                            ..StepOutcome::default()
                        }],
                        ending: Ending::TimedOut,
                        detail: String::new(),
                        artifacts: Vec::new(),
                        artifacts_truncated: false,
                    })
                }
            }
        })
    }
}

/// A broker that knows two grants of `alice`, `triage` on port 8443 and `elsewhere` on port 9443, and writes down what it is asked.
#[derive(Debug)]
pub struct FakeBroker {
    pub socket: PathBuf,
    pub asked: Arc<Mutex<Vec<RequestBody>>>,
    /// The policy has changed: runs that name no grant could name one on port 9443, too.
    pub changed: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl FakeBroker {
    pub fn start(floor: Option<Tier>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let changed = Arc::<AtomicBool>::default();
        let later = Arc::clone(&changed);
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (log, later) = (Arc::clone(&log), Arc::clone(&later));
                connections.spawn(async move {
                    let connection = Connection::new(stream);
                    while let Ok((request, sockets)) = connection.receive::<Request>().await {
                        let body = reply(&request.body, floor, later.load(Ordering::SeqCst), sockets.len());
                        log.lock().unwrap().push(request.body);
                        if connection.send(&Answer { id: request.id, body }, &[]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { socket, asked, changed, _folder: folder, server }
    }

    pub fn words(&self) -> Vec<&'static str> {
        let word = |body: &RequestBody| match body {
            RequestBody::Prepare(_) => "prepare",
            RequestBody::Open(_) => "open",
            RequestBody::Close(_) => "close",
            RequestBody::Issue(_) => "issue",
            RequestBody::Note(_) => "note",
            RequestBody::Approvals | RequestBody::Decide(_) => "approvals",
            RequestBody::Revoke(_) => "revoke",
        };
        self.asked.lock().unwrap().iter().map(word).collect()
    }

    pub fn notes(&self) -> Vec<freeboard_control::RunNote> {
        let asked = self.asked.lock().unwrap();
        let notes = asked.iter().filter_map(|body| match body {
            RequestBody::Note(note) => Some(note.clone()),
            _ => None,
        });
        notes.collect()
    }

    pub fn stop(&self) {
        self.server.abort();
        std::fs::remove_file(&self.socket).unwrap();
    }
}

fn reply(body: &RequestBody, floor: Option<Tier>, changed: bool, sockets: usize) -> AnswerBody {
    match body {
        RequestBody::Prepare(run) => {
            let mine = run.grants.iter().all(|grant| grant == "triage" || grant == "elsewhere");
            let elsewhere =
                run.grants.iter().any(|grant| grant == "elsewhere") || (run.grants.is_empty() && changed);
            if !run.grants.is_empty() && (!mine || run.caller.as_deref() != Some("alice")) {
                let message = format!("no grant {:?} for {:?}", run.grants, run.caller);
                return AnswerBody::Refused { reason: Reason::GrantNotAvailable, message };
            }
            AnswerBody::Prepared(Prepared {
                policy_digest: "d".repeat(64),
                floor: floor.filter(|_| !run.grants.is_empty()),
                ttl_seconds: Some(900),
                ports: vec![if elsewhere { 9443 } else { 8443 }],
                ca_pem: "-----BEGIN CERTIFICATE-----".into(),
                surface: vec![SurfaceApi {
                    api: "items".into(),
                    base_url: "https://api.test".into(),
                    routes: vec!["GET /v1/items/{int}".into()],
                }],
                variables: Vec::new(),
            })
        }
        RequestBody::Open(gate) => {
            assert_eq!(gate.doors.len(), sockets, "one descriptor per door");
            AnswerBody::Opened
        }
        RequestBody::Close(_) => AnswerBody::Closed(Trace { allowed: 2, ..Trace::default() }),
        RequestBody::Issue(_) => AnswerBody::Issued(freeboard_control::ProxyToken("token".to_owned())),
        RequestBody::Note(_) => AnswerBody::Noted,
        RequestBody::Approvals | RequestBody::Decide(_) | RequestBody::Revoke(_) => {
            unreachable!("people say this, not sandboxd")
        }
    }
}

/// A daemon on a free port, with callers `alice` and `bob`.
pub struct Daemon {
    pub address: std::net::SocketAddr,
    pub alice: String,
    pub bob: String,
    pub counts: Arc<Counts>,
    pub plans: Arc<Mutex<Vec<Plan>>>,
    pub app: Arc<App>,
    pub callers_file: PathBuf,
    _folder: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub struct Setup {
    pub fake: Option<Fake>,
    pub broker: Option<PathBuf>,
    pub operator_floor: Option<Tier>,
    pub limits: Limits,
    pub anybody: bool,
    pub sessions: Settings,
    /// Run programs for real, on this host.
    pub host: bool,
    /// Where started runs are kept, where that is not in memory.
    pub runs: Option<Arc<Runs>>,
}

impl Setup {
    pub fn new(act: Act) -> Self {
        Self {
            fake: Some(Fake::new(act)),
            broker: None,
            operator_floor: None,
            limits: Limits { concurrent: 8, concurrent_per_caller: 8, rate_per_minute: 0 },
            anybody: false,
            sessions: Settings::default(),
            host: false,
            runs: None,
        }
    }

    /// A provider that serves sessions too.
    pub fn sessions(mut self, settings: Settings) -> Self {
        self.sessions = settings;
        if let Some(fake) = &mut self.fake {
            fake.description.supports_sessions = true;
        }
        self
    }

    pub fn broker(mut self, broker: &FakeBroker) -> Self {
        self.broker = Some(broker.socket.clone());
        self
    }

    pub async fn start(self) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let callers_file = folder.path().join("callers.toml");
        let token = |name| {
            let token = callers::create(&callers_file, name).unwrap();
            token.reveal().to_owned()
        };
        let (alice, bob) = (token("alice"), token("bob"));
        let counts = self.fake.as_ref().map(|fake| Arc::clone(&fake.counts)).unwrap_or_default();
        let plans = self.fake.as_ref().map(|fake| Arc::clone(&fake.plans)).unwrap_or_default();
        let providers: Vec<Arc<dyn Provider>> = if self.host {
            vec![Arc::new(host::Host)]
        } else {
            self.fake.map(|fake| Arc::new(fake) as Arc<dyn Provider>).into_iter().collect()
        };
        let broker = self.broker.map(Broker::new);
        let admission = Admission::new(self.limits);
        let launcher = Launcher::new(providers, broker, admission, self.operator_floor);
        let doorkeeper = if self.anybody {
            Doorkeeper::DangerAnybody
        } else {
            Doorkeeper::tokens(Callers::load(&callers_file).unwrap())
        };
        let sessions = Sessions::new(self.sessions);
        let runs = self.runs.unwrap_or_else(|| Runs::in_memory(tell));
        let app = Arc::new(App { launcher, sessions, runs, doorkeeper });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&app);
        let server = tokio::spawn(async move {
            serve(serving, listener, std::future::pending()).await.unwrap();
        });
        Daemon { address, alice, bob, counts, plans, app, callers_file, _folder: folder, server }
    }
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(key, _)| key == name).count()
    }

    /// Code and mark; the mark of a detail, else of the header.
    pub fn refusal(&self) -> (String, Option<String>) {
        let error = freeboard_wire::error::read_error(&self.body);
        let detail = error.as_ref().and_then(|error| error.mark).map(|mark| mark.word().to_owned());
        let header = self.header("plimsoll-not-dispatched").map(str::to_owned);
        (error.map(|error| error.code.name().to_owned()).unwrap_or_default(), detail.or(header))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Daemon {
    /// The token of one more caller, who is let in from now on.
    pub fn admit(&self, name: &str, scopes: &[&str]) -> String {
        let token = Token::random().unwrap();
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        callers::add(&self.callers_file, name, &token, &Grants { scopes, own: Own::default() }).unwrap();
        self.app.replace_callers(Callers::load(&self.callers_file).unwrap());
        token.reveal().to_owned()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// One exchange on a connection of its own, as bytes.
    pub async fn raw(&self, head: &str, body: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // A daemon that refuses early may close before everything is sent.
        let _ = stream.write_all(body).await;
        let mut whole = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut whole)).await.unwrap();
        parse(&whole)
    }

    pub async fn post_as(&self, token: &str, procedure: &str, extra: &str, body: &[u8]) -> Reply {
        let head = format!(
            "POST /plimsoll.v1.SandboxService/{procedure} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Plimsoll-Request-Id: {ID}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n{extra}\r\n",
            body.len()
        );
        self.raw(&head, body).await
    }

    /// JSON to freeboard.v1.
    pub async fn own(&self, token: &str, procedure: &str, extra: &str, body: &str) -> Reply {
        let head = format!(
            "POST /freeboard.v1.Runs/{procedure} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Freeboard-Request-Id: {ID}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n{extra}\r\n",
            body.len()
        );
        self.raw(&head, body.as_bytes()).await
    }

    /// JSON as `alice`.
    pub async fn post(&self, procedure: &str, body: &str) -> Reply {
        self.post_as(&self.alice, procedure, "Content-Type: application/json\r\n", body.as_bytes()).await
    }
}

fn parse(whole: &[u8]) -> Reply {
    let end = whole.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer with a head");
    let head = String::from_utf8(whole[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Reply { status, headers, body: whole[end + 4..].to_vec() }
}

/// Waits for a condition; fails when it does not come true in time.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The binary under test.
pub fn sandboxd() -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_sandboxd")));
    command.env_remove("SANDBOX_PROVIDER").env_remove("SANDBOX_MIN_ISOLATION").env_remove("RUST_LOG");
    command
}

/// Takes over the started runs of a daemon that was just dropped, whose tasks may be ending still.
pub async fn reopened(folder: &Path) -> Arc<Runs> {
    for _ in 0..500 {
        match Runs::in_folder(folder, tell) {
            Ok(runs) => return runs,
            Err(freeboard_sandboxd::runs::JournalError::InUse(_)) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the folder stays in use");
}

/// Copies the files of a folder into a new one that only its owner can read.
pub fn copy_private(from: &Path, to: &Path) {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// The interpreter of a virtual environment below the target folder in which `code` runs once `package` is installed; `None`,
/// loudly, where there is no python3 or no PyPI.
pub fn venv(name: &str, package: &str, code: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join(name);
    let python = folder.join("bin/python");
    let has_it =
        || Command::new(&python).args(["-c", code]).output().is_ok_and(|output| output.status.success());
    if !has_it() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
        let got = Command::new(folder.join("bin/pip")).args(["install", "--quiet", package]).status();
        if !(made.is_ok_and(|status| status.success()) && got.is_ok_and(|status| status.success())) {
            eprintln!("SKIPPED: no python3 with venv, or {package} cannot be installed");
            return None;
        }
    }
    Some(python)
}
