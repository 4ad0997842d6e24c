//! The lab: upstreams, the real broker, and runs with hand-made gates.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use freeboard_control::{Client, ClientError, Door, Evidence, Fact, OpenGate, PrepareRun, Prepared, Trace};
use freeboard_netns::{CatchAll, DoorKind, Families, Form, GateSpec, Plan, apply_here};
use freeboard_policy::Tier;
use serde_json::Value;

use crate::audit::AuditLog;
use crate::broker::{BrokerProcess, GUARD, GUARD_NAME, Names};
use crate::ca::TestCa;
use crate::canary::Canary;
use crate::dns;
use crate::nameserver::Nameserver;
use crate::network::Network;
use crate::upstream::{HOSTS, Upstream, address_of};
use crate::wait;
use crate::wire::Wire;

/// The real secrets of the lab; each must appear nowhere but at its upstream.
pub const C1: &str = "canary-c1-3f9a5e71d2b84c06";
pub const C2: &str = "canary-c2-a81d6c2f9e3b4705";
pub const C3: &str = "canary-c3-07e4b9d15ac82f63";
pub const C4: &str = "canary-c4-5b20f8c6e1794ad3";
/// Parameter `key` of `aws.test`, which stands for an API with its credential in the query.
pub const C5: &str = "canary-c5-c94e17a0d86b3f52";

/// Grants of the lab's policy, as ATTACKS names them.
pub const ALL_GRANTS: [&str; 6] = ["items", "echo", "pub", "git", "reg", "query"];

/// The caller whom the grants are for.
pub const CALLER: &str = "lab";

/// The lab's policy. `FOLDER` is replaced.
pub const POLICY: &str = r#"
[credential.c1]
kind = "bearer"
token = { file = "FOLDER/secrets/c1" }

[credential.c2]
kind = "bearer"
token = { file = "FOLDER/secrets/c2" }

[credential.c3]
kind = "basic"
username = "robot"
password = { file = "FOLDER/secrets/c3" }

[credential.c4]
kind = "header"
name = "x-api-key"
value = { file = "FOLDER/secrets/c4" }

[credential.c5]
kind = "query"
parameter = "key"
value = { file = "FOLDER/secrets/c5" }

[api.api]
origins = ["https://api.test"]
credential = "c1"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.echo]
origins = ["https://echo.test"]
credential = "c2"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.pub]
origins = ["https://pub.test"]
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.git]
origins = ["https://git.test"]
credential = "c3"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.reg]
origins = ["https://reg.test"]
credential = "c4"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.cdn]
origins = ["https://cdn.test"]
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.query]
origins = ["https://aws.test"]
credential = "c5"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[grant.items]
callers = ["lab"]
budget = { calls = 100000, per_minute = 100000, concurrent = 64 }
[[grant.items.allow]]
api = "api"
routes = ["GET /v1/items/*", "POST /v1/items", "GET /v1/search?scope!=read"]

[grant.echo]
callers = ["lab"]
budget = { calls = 100000, per_minute = 100000, concurrent = 64 }
[[grant.echo.allow]]
api = "echo"
routes = ["* /**?*"]

[grant.pub]
callers = ["lab"]
budget = { calls = 100000, per_minute = 100000, concurrent = 64, request_bytes = "64MiB", response_bytes = "64MiB" }
[[grant.pub.allow]]
api = "pub"
routes = ["GET|POST|PUT /**?*"]
[[grant.pub.allow]]
api = "pub"
routes = ["GET /ws/**"]
websocket = true

[grant.git]
callers = ["lab"]
budget = { calls = 100000, per_minute = 100000, concurrent = 64 }
[[grant.git.allow]]
api = "git"
routes = ["GET /org/repo.git/info/refs?service!=git-upload-pack", "POST /org/repo.git/git-upload-pack"]

[grant.reg]
callers = ["lab"]
[[grant.reg.allow]]
api = "reg"
routes = ["GET /v2/**"]
[[grant.reg.allow]]
api = "cdn"
routes = ["GET /**?*"]

[grant.query]
callers = ["lab"]
[[grant.query.allow]]
api = "query"
routes = ["GET /**?*"]
"#;

/// By which door a request comes in. Every attack is tried by each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The synthetic address of the name, port 443.
    Transparent,
    /// CONNECT to port 3128.
    Connect,
    /// CONNECT to the guard, from another machine, inside of its TLS.
    Guard,
}

pub const WAYS: [Way; 3] = [Way::Transparent, Way::Connect, Way::Guard];

/// Upstreams, broker and folders of one test.
#[derive(Debug)]
pub struct Lab {
    pub upstream: Upstream,
    pub broker: BrokerProcess,
    pub audit: AuditLog,
    world: Network,
    control: Option<Client>,
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
    next_run: AtomicU64,
}

impl Lab {
    /// Starts everything. `None`, and a loud word, where no namespace can be made.
    pub fn start() -> Option<Self> {
        Self::start_with(POLICY, &[])
    }

    /// With another policy (`FOLDER` in it is replaced), leaving the addresses of `without` to a real server.
    pub fn start_with(policy: &str, without: &[&str]) -> Option<Self> {
        Self::start_resolving(policy, without, &[])
    }

    /// One whose audit log begins a new file often.
    pub fn start_with_small_files() -> Option<Self> {
        let mut lab = Self::start()?;
        let config = std::fs::read_to_string(lab.broker.config_file()).unwrap();
        let small = config.replacen("[broker.audit]\n", "[broker.audit]\nfile_size = \"64KiB\"\n", 1);
        assert_ne!(small, config);
        std::fs::write(lab.broker.config_file(), small).unwrap();
        lab.broker.kill();
        lab.restart();
        Some(lab)
    }

    /// With names that the broker resolves to these addresses, besides the lab's hosts.
    pub fn start_resolving(policy: &str, without: &[&str], names: &[(&str, &str)]) -> Option<Self> {
        let world = Network::with_addresses(&HOSTS.map(address_of))?;
        Some(Self::start_in(world, policy, without, &Names { fixed: names, ..Names::default() }))
    }

    /// With more tables in the broker's configuration (`FOLDER` in them is replaced).
    pub fn start_configured(policy: &str, without: &[&str], more: &str) -> Option<Self> {
        let world = Network::with_addresses(&HOSTS.map(address_of))?;
        Some(Self::start_in(world, policy, without, &Names { more, ..Names::default() }))
    }

    /// With a broker that asks a name server for `name`: each question after an address gets the next set of the script. `None`,
    /// and a loud word, where /etc/resolv.conf cannot be the broker's own.
    pub fn start_with_nameserver(
        policy: &str,
        name: &str,
        script: Vec<Vec<IpAddr>>,
    ) -> Option<(Self, Nameserver)> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("SKIPPED: only root gives a broker a resolv.conf of its own");
            return None;
        }
        let address = address_of("evil.test");
        let world = Network::with_addresses(&HOSTS.map(address_of))?;
        let nameserver = Nameserver::start(&world, SocketAddr::new(address, 53), name, script);
        let names = Names { by_dns: Some((name, address)), ..Names::default() };
        Some((Self::start_in(world, policy, &[], &names), nameserver))
    }

    fn start_in(world: Network, policy: &str, without: &[&str], names: &Names<'_>) -> Self {
        let folder = tempfile::Builder::new().prefix("freeboard-lab-").tempdir().unwrap();
        let ca = Arc::new(TestCa::new());
        let upstream = Upstream::start(&world, &ca, without);
        for name in ["secrets", "policy"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, secret) in [("c1", C1), ("c2", C2), ("c3", C3), ("c4", C4), ("c5", C5)] {
            let path = folder.path().join("secrets").join(name);
            std::fs::write(&path, secret).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        std::fs::write(folder.path().join("upstream-ca.pem"), ca.pem()).unwrap();
        write_policy(folder.path(), policy);
        let (certificate, key) = ca.leaf_pem(&[GUARD_NAME]);
        std::fs::write(folder.path().join("guard.pem"), certificate).unwrap();
        let path = folder.path().join("guard-key.pem");
        std::fs::write(&path, key).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let broker = BrokerProcess::start(&world, folder.path(), names);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let audit = AuditLog::new(&broker.audit_folder());
        let mut lab = Self {
            upstream,
            broker,
            audit,
            world,
            control: None,
            runtime,
            folder,
            next_run: AtomicU64::new(1),
        };
        lab.reconnect();
        lab
    }

    /// Opens a control connection anew, for instance after the broker was started again.
    pub fn reconnect(&mut self) {
        let socket = self.broker.control_socket();
        let connect = || self.runtime.block_on(Client::connect(&socket)).ok();
        self.control = Some(wait::until("the control socket takes a connection", connect));
    }

    /// Drops the control connection, as when sandboxd dies.
    pub fn disconnect(&mut self) {
        self.control = None;
    }

    /// Starts the broker again after its end, and connects.
    pub fn restart(&mut self) {
        self.control = None;
        self.broker.restart(&self.world);
        self.reconnect();
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn world(&self) -> &Network {
        &self.world
    }

    /// Puts a secret where only the broker can read it, in place of the one before.
    pub fn secret(&self, name: &str, content: &str) {
        let folder = self.folder.path().join("secrets");
        let next = folder.join(format!("{name}.next"));
        std::fs::write(&next, content).unwrap();
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o600)).unwrap();
        if nix::unistd::geteuid().is_root() {
            crate::broker::hand_over(&next);
        }
        std::fs::rename(next, folder.join(name)).unwrap();
    }

    /// Puts another policy into the folder. The broker is not told.
    pub fn write_policy(&self, policy: &str) {
        write_policy(self.folder.path(), policy);
    }

    fn control(&self) -> &Client {
        self.control.as_ref().expect("connected")
    }

    pub fn prepare(&self, grants: &[&str]) -> Result<Prepared, ClientError> {
        let run = PrepareRun {
            caller: Some(CALLER.to_owned()),
            grants: grants.iter().map(|grant| (*grant).to_owned()).collect(),
            session: false,
        };
        self.runtime.block_on(self.control().prepare(run))
    }

    /// A run at tier `container` with these grants, and its gate.
    pub fn run(&self, grants: &[&str]) -> Run<'_> {
        self.try_run(grants, Tier::Container, Duration::from_secs(600)).unwrap()
    }

    /// A run behind a boundary of this tier, for this long.
    pub fn try_run(&self, grants: &[&str], tier: Tier, time: Duration) -> Result<Run<'_>, ClientError> {
        let prepared = self.prepare(grants)?;
        let gate = Network::fresh().expect("there was a namespace for the world");
        let doors = gate.enter(|| {
            let spec = GateSpec {
                form: Form::Loopback,
                ports: prepared.ports.clone(),
                families: Families::Both,
                catch_all: CatchAll::WhereOffered,
            };
            apply_here(&Plan::new(&spec).unwrap()).unwrap().doors
        });
        let id = format!("{:032x}", self.next_run.fetch_add(1, Ordering::Relaxed));
        let (kinds, descriptors): (Vec<Door>, Vec<OwnedFd>) =
            doors.into_iter().map(|(kind, descriptor)| (door(kind), descriptor)).unzip();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let open = OpenGate {
            run: id.clone(),
            caller: Some(CALLER.to_owned()),
            grants: grants.iter().map(|grant| (*grant).to_owned()).collect(),
            evidence: Evidence {
                provider: "lab".to_owned(),
                tier,
                facts: vec![Fact { name: "hand_made".to_owned(), value: "yes".to_owned(), met: true }],
            },
            expires_unix_ms: u64::try_from((now + time).as_millis()).unwrap(),
            trace_id: None,
            session: None,
            doors: kinds,
        };
        self.runtime.block_on(self.control().open(open, descriptors))?;
        Ok(Run { lab: self, id, ca_pem: prepared.ca_pem, gate, guard_token: OnceLock::new() })
    }

    /// Fails when one of the real secrets is in `bytes`.
    pub fn assert_no_secret(&self, place: &str, bytes: &[u8]) {
        for secret in [C1, C2, C3, C4, C5] {
            Canary::new(secret).assert_absent(place, bytes);
        }
    }
}

impl Drop for Lab {
    /// The fourth oracle of every case: no secret in any log.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = self.audit.text();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- the end of the audit log:\n{}", lines[lines.len().saturating_sub(8)..].join("\n"));
        } else {
            self.assert_no_secret("the audit log", self.audit.text().as_bytes());
            self.assert_no_secret("the broker's output", &self.broker.output());
        }
    }
}

fn write_policy(folder: &Path, policy: &str) {
    let path = folder.join("policy").join("lab.toml");
    let next: PathBuf = folder.join("next.toml");
    std::fs::write(&next, policy.replace("FOLDER", folder.to_str().unwrap())).unwrap();
    std::fs::rename(next, path).unwrap();
}

/// The control protocol's word for a door.
pub fn door(kind: DoorKind) -> Door {
    match kind {
        DoorKind::Tcp { port } => Door::Tcp { port },
        DoorKind::Proxy { port } => Door::Proxy { port },
        DoorKind::DnsUdp => Door::DnsUdp,
        DoorKind::DnsTcp => Door::DnsTcp,
        DoorKind::CatchAll { .. } => Door::CatchAll,
    }
}

/// One run with its gate. What is dialled here is dialled as the untrusted program would.
#[derive(Debug)]
pub struct Run<'a> {
    pub lab: &'a Lab,
    pub id: String,
    /// The authority that guests of this run trust.
    pub ca_pem: String,
    pub gate: Network,
    guard_token: OnceLock<String>,
}

/// Address of the resolver that a guest is told to ask; any other is answered the same.
pub const RESOLVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));

impl Run<'_> {
    /// The address that the gate's DNS gives for a name.
    pub fn resolve(&self, host: &str) -> Option<IpAddr> {
        dns::ask_udp(&self.gate, RESOLVER, host, dns::A).ok()?.addresses.first().copied()
    }

    /// A clear connection to the gate's proxy.
    pub fn proxy(&self) -> Wire {
        Wire::clear(self.gate.connect("10.1.1.1:3128".parse().unwrap()).unwrap())
    }

    /// TLS to the guard, from another machine.
    pub fn guard(&self) -> io::Result<Wire> {
        let clear = Wire::clear(self.lab.world.connect(GUARD.parse().unwrap())?);
        clear.start_tls(GUARD_NAME, self.lab.upstream.ca().pem(), &[b"http/1.1"])
    }

    /// What this run proves itself with there.
    pub fn guard_proof(&self) -> String {
        let issue = || self.lab.runtime.block_on(self.lab.control().issue(&self.id)).unwrap().0;
        format!("Bearer {}.{}", self.id, self.guard_token.get_or_init(issue))
    }

    /// A clear connection to a name's synthetic address (or an address) and port.
    pub fn dial(&self, host: &str, port: u16) -> io::Result<Wire> {
        let address = match host.parse::<IpAddr>() {
            Ok(address) => address,
            Err(_) => {
                let answer = dns::ask_udp(&self.gate, RESOLVER, host, dns::A);
                let address = answer.as_ref().ok().and_then(|answer| answer.addresses.first().copied());
                address.ok_or_else(|| io::Error::other(format!("`{host}` does not resolve: {answer:?}")))?
            }
        };
        Ok(Wire::clear(self.gate.connect(SocketAddr::new(address, port))?))
    }

    /// TLS to `host` by this way, HTTP/1.1.
    pub fn tls(&self, way: Way, host: &str) -> Wire {
        self.tls_with(way, host, 443, host, &[b"http/1.1"]).unwrap()
    }

    /// TLS by this way with any server name and protocols.
    pub fn tls_with(
        &self,
        way: Way,
        host: &str,
        port: u16,
        name: &str,
        protocols: &[&[u8]],
    ) -> io::Result<Wire> {
        let clear = match way {
            Way::Transparent => self.dial(host, port)?,
            Way::Connect | Way::Guard => {
                let (mut proxy, proof) = match way {
                    Way::Guard => (self.guard()?, format!("Proxy-Authorization: {}\r\n", self.guard_proof())),
                    _ => (self.proxy(), String::new()),
                };
                let answer = proxy
                    .ask(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{proof}\r\n"));
                match answer.status() {
                    Some(200) => proxy,
                    _ => return Err(io::Error::other(format!("{answer:?}"))),
                }
            }
        };
        clear.start_tls(name, &self.ca_pem, protocols)
    }

    /// Decisions recorded for this run, once there are at least `count`.
    pub fn decisions(&self, count: usize) -> Vec<Value> {
        wait::until(&format!("{count} decisions of the run are in the log"), || {
            let decisions = self.lab.audit.decisions(&self.id);
            (decisions.len() >= count).then_some(decisions)
        })
    }

    /// Refusals recorded for this run, once there are at least `count`.
    pub fn refusals(&self, count: usize) -> Vec<Value> {
        wait::until(&format!("{count} refusals of the run are in the log"), || {
            let refusals = self.lab.audit.decisions_that(false, &self.id);
            (refusals.len() >= count).then_some(refusals)
        })
    }

    /// Ends the run.
    pub fn close(self) -> Trace {
        self.lab.runtime.block_on(self.lab.control().close(&self.id)).unwrap()
    }
}
