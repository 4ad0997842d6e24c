//! Provider `gvisor`: a kernel of the run's own in user space. The runtime `runsc` is driven directly, inside namespaces,
//! a private root, a user and a control group of its own, and its network is the gate. Tier `kernel`.
//!
//! ```text
//! daemon ── launcher ── child (pid 1, then the gate) ── runsc ─┬─ gofer: files of the run's root
//!    ▲                                                         └─ sandbox: gVisor's kernel ── guest program ── steps
//!    └──────────────────────────────── channel ────────────────────────────────┘
//! ```

mod bundle;
pub(crate) mod child;
mod config;
mod limits;
mod measure;
mod root;
mod runtime;
mod smoke;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use freeboard_policy::Tier;
use futures_util::future::BoxFuture;
use rustix::process::{getegid, geteuid};

pub use config::{GvisorConfig, Platform};

use super::native::can_run;
use super::native::link::LazyLink;
use super::native::sandbox::{Interpreters, NativeSandbox};
use super::program::{Program, find_guest};
use super::{CreateError, Description, Plan, Provider, Sandbox, Service};
use crate::child::launcher::Launcher;
use crate::isolate::kernel::{Gvisor, Kernel};
use crate::isolate::namespaces::Identity;
use crate::isolate::view::View;
use crate::isolate::{Boundary, GatePorts, Limits};
use crate::job::Less;

/// The provider's name in configuration, evidence and answers.
pub const NAME: &str = "gvisor";

/// Ids of the host that one run takes: of its processes, and of the one that shall have no rights.
const IDS_PER_RUN: u32 = 2;

/// Makes sandboxes through a launcher of its own.
#[derive(Debug)]
pub struct GvisorProvider {
    config: GvisorConfig,
    runsc: Arc<Program>,
    guest: Program,
    view: View,
    /// Programs that run snippets: absolute in the guest.
    node: Option<PathBuf>,
    python: Option<PathBuf>,
    link: LazyLink,
    next_identity: AtomicU32,
}

impl GvisorProvider {
    /// Looks for the runtime, then forks the launcher. Called while the process has one thread.
    pub fn start(config: GvisorConfig, service: Service) -> Result<Self, CreateError> {
        runtime::find_runsc(config.runsc.as_deref())?;
        let link = LazyLink::of(service, None)?;
        Self::with(config, link)
    }

    /// Looks at the runtime and at the host's tools (or the given root), and takes over the launcher.
    pub fn new(config: GvisorConfig, launcher: Launcher) -> Result<Self, CreateError> {
        Self::with(config, LazyLink::new(launcher))
    }

    fn with(config: GvisorConfig, link: LazyLink) -> Result<Self, CreateError> {
        let runsc = Arc::new(runtime::find_runsc(config.runsc.as_deref())?);
        let guest = find_guest(config.guest.as_deref())?;
        let view = match &config.root {
            Some(root) => View::of_folder(root),
            None => View::of_host(&config.extra_read_only),
        };
        let view = view
            .map_err(|source| CreateError::Step { step: "look at the tools for the guest".into(), source })?;
        let (node, python) = (view.find_program("node"), view.find_program("python3"));
        let next_identity = AtomicU32::new(std::process::id());
        Ok(Self { config, runsc, guest, view, node, python, link, next_identity })
    }

    /// The digest is worked out by the first run, and not on a thread that serves others.
    async fn kernel(&self, nobody_host_id: Option<u32>) -> Result<Gvisor, CreateError> {
        let program = Arc::clone(&self.runsc);
        let digest = tokio::task::spawn_blocking(move || program.digest().map(str::to_owned));
        let runsc_sha256 =
            digest.await.map_err(std::io::Error::other).flatten().map_err(|source| CreateError::Host {
                what: format!("cannot read `{}`: {source}", self.runsc.path.display()),
                help: "restart sandboxd after an update of runsc".into(),
            })?;
        Ok(Gvisor {
            runsc: self.runsc.path.clone(),
            runsc_file: self.runsc.identity,
            runsc_sha256,
            guest: self.guest.path.clone(),
            platform: self.config.platform.map(|platform| platform.word().to_owned()),
            nobody_host_id,
        })
    }

    async fn boundary(&self, plan: &Plan) -> Result<Boundary, CreateError> {
        let prepared = plan.prepared.as_ref();
        let (identity, nobody) = self.identity();
        if prepared.is_some() && nobody.is_none() {
            return Err(CreateError::Host {
                what: "gVisor's network needs two ids of the host for each run".into(),
                help: "run sandboxd as root, or use `native`".into(),
            });
        }
        Ok(Boundary {
            run: plan.job.run.clone(),
            identity,
            view: self.view.clone(),
            limits: self.limits(plan.job.less),
            gate: prepared.map(|prepared| GatePorts { ports: prepared.ports.clone() }),
            ca_pem: prepared.map(|prepared| prepared.ca_pem.clone()).unwrap_or_default(),
            kernel: Some(Kernel::Gvisor(self.kernel(nobody).await?)),
        })
    }

    /// Root gives each run two unused ids of the host; an ordinary user has only the own one.
    fn identity(&self) -> (Identity, Option<u32>) {
        let identity = |uid, gid| Identity { guest_uid: 0, guest_gid: 0, host_uid: uid, host_gid: gid };
        if !geteuid().is_root() {
            return (identity(geteuid().as_raw(), getegid().as_raw()), None);
        }
        let pairs = (self.config.allowance.uid_count / IDS_PER_RUN).max(1);
        let turn = self.next_identity.fetch_add(1, Ordering::Relaxed) % pairs;
        let id = self.config.allowance.uid_base + turn * IDS_PER_RUN;
        (identity(id, id), Some(id + 1))
    }

    /// Of the group around the whole runtime.
    fn limits(&self, less: Less) -> Limits {
        let of_run = self.config.allowance.lowered(less).limits();
        Limits {
            memory_bytes: of_run.memory_bytes + limits::KERNEL_BYTES,
            // Each process of the run is a thread of gVisor's kernel and a process that it traces.
            pids: of_run.pids * 2 + limits::KERNEL_THREADS,
            ..of_run
        }
    }
}

impl Provider for GvisorProvider {
    fn describe(&self) -> Description {
        let (node, python) = (self.node.is_some(), self.python.is_some());
        let usual = self.config.allowance.description(NAME, Tier::Kernel, node, python);
        Description { supports_grants: geteuid().is_root(), ..usual }
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        Box::pin(async move {
            can_run(NAME, &plan.job.payload, self.node.is_some())?;
            // First of all: it may fork, and working out the digest of the runtime starts a thread.
            let link = self.link.get()?;
            let boundary = self.boundary(plan).await?;
            let interpreters = Interpreters::of(self.node.as_deref(), self.python.as_deref());
            let job = plan.job.clone();
            let sandbox =
                NativeSandbox::create(link, boundary, job, interpreters, Arc::new(measure::measure)).await?;
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }

    fn ready_for<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), CreateError>> {
        Box::pin(async move {
            can_run(NAME, &plan.job.payload, self.node.is_some())?;
            self.boundary(plan).await.map(drop)
        })
    }

    fn smoke_test(&self) -> BoxFuture<'_, Result<(), CreateError>> {
        Box::pin(smoke::smoke_test(self))
    }
}
