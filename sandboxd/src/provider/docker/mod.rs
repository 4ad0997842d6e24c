//! Provider `docker`: a container of a Docker Engine on this host. No network of the engine's: the container has none, and
//! the gate is made in its own before any user code is there. Tier `container` with the runtime `runc`, `kernel` with
//! `runsc`.
//!
//! ```text
//! daemon ── engine ── runtime ── container: guest program (waits) ── steps
//!    ▲  │                              │
//!    │  └── gate in its network ───────┤
//!    └───── channel (its input and output, through the engine) ─┘
//! ```
//!
//! The engine is asked for the strictest container that it makes, and then measured like every other boundary. It is
//! trusted: whoever owns its socket is root of this host.

mod config;
mod container;
mod engine;
mod evidence;
mod limits;
mod run;
mod smoke;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bollard::Docker;
use bollard::query_parameters::ListContainersOptionsBuilder;
use freeboard_policy::Tier;
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

pub use config::{DockerConfig, Runtime};
use container::{OWNER, Wish};
use engine::Engine;

use super::native::can_run;
use super::program::{Program, find_guest};
use super::{CreateError, Description, Plan, Provider, Sandbox};
use crate::isolate::kernel::Kernel;
use crate::isolate::namespaces::{GUEST_ID, Identity};
use crate::isolate::view::View;
use crate::isolate::{Boundary, GatePorts, Limits};
use crate::job::Less;

/// The provider's name in configuration, evidence and answers.
pub const NAME: &str = "docker";

/// Variables of a step that no image decides.
const OURS: [&str; 8] = ["HOME", "PWD", "TMPDIR", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TERM"];

/// Asks an engine for containers.
#[derive(Debug)]
pub struct DockerProvider {
    config: DockerConfig,
    guest: Program,
    /// What was found at the start: the image that runs is this one, whatever its name means later.
    engine: Arc<Engine>,
    /// Connected by the first run, inside the runtime that serves the runs.
    docker: OnceCell<Docker>,
    owner: String,
    next_identity: AtomicU32,
}

impl DockerProvider {
    /// Looks at the engine, the runtime and the image.
    pub fn start(config: DockerConfig) -> Result<Self, CreateError> {
        if !rustix::process::geteuid().is_root() {
            return Err(CreateError::Host {
                what: "containers are measured, and given their gate, from outside".into(),
                help: "run sandboxd as root".into(),
            });
        }
        let guest = find_guest(config.guest.as_deref())?;
        let step = |source| CreateError::Step { step: "ask the engine".into(), source };
        // The daemon's own runtime is not there yet; this one has no thread and ends here.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(step)?;
        let owner = owner(std::process::id());
        let look = async {
            let docker = engine::connect(&config.socket)?;
            Engine::look(docker, &config, &owner).await
        };
        let (_, engine) = runtime.block_on(look)?;
        let next_identity = AtomicU32::new(std::process::id());
        Ok(Self { config, guest, engine: Arc::new(engine), docker: OnceCell::new(), owner, next_identity })
    }

    /// The connection. The first time, containers of daemons that are gone are removed.
    async fn docker(&self) -> Result<&Docker, CreateError> {
        let connected = self.docker.get_or_try_init(|| async {
            let docker = engine::connect(&self.config.socket)?;
            let docker = docker.negotiate_version().await;
            let docker = docker.map_err(|error| engine::failed("ask the engine for its version", &error))?;
            sweep(&docker).await;
            Ok(docker)
        });
        connected.await
    }

    fn boundary(&self, plan: &Plan) -> Boundary {
        let prepared = plan.prepared.as_ref();
        let id = self.config.allowance.uid(self.next_identity.fetch_add(1, Ordering::Relaxed));
        // Without a user namespace the ids inside are the host's; gVisor's are its own.
        let (guest, kernel) = match self.config.runtime {
            Runtime::Runc => (id, None),
            Runtime::Runsc => (GUEST_ID, Some(Kernel::Engine)),
        };
        Boundary {
            run: plan.job.run.clone(),
            identity: Identity { guest_uid: guest, guest_gid: guest, host_uid: id, host_gid: id },
            view: View { entries: Vec::new() },
            limits: self.limits(plan.job.less),
            gate: prepared.map(|prepared| GatePorts { ports: prepared.ports.clone() }),
            ca_pem: prepared.map(|prepared| prepared.ca_pem.clone()).unwrap_or_default(),
            kernel,
        }
    }

    fn limits(&self, less: Less) -> Limits {
        let (more_bytes, more_threads, per_process) = match self.config.runtime {
            Runtime::Runc => (0, 1, 1),
            Runtime::Runsc => (limits::KERNEL_BYTES, limits::KERNEL_THREADS, 2),
        };
        let of_run = self.config.allowance.lowered(less).limits();
        Limits {
            memory_bytes: of_run.memory_bytes + more_bytes,
            // The first process is one of them.
            pids: of_run.pids * per_process + more_threads,
            ..of_run
        }
    }

    async fn make(&self, plan: &Plan) -> Result<Box<dyn Sandbox>, CreateError> {
        can_run(NAME, &plan.job.payload, self.engine.node.is_some())?;
        if self.config.runtime == Runtime::Runsc && plan.prepared.is_some() {
            let what =
                "a run with a gate: the runtime takes its network before one could be there; the provider \
                        `gvisor` has one"
                    .into();
            return Err(CreateError::Unsupported { provider: NAME, what });
        }
        let boundary = self.boundary(plan);
        let guest = self.guest.path.display().to_string();
        let wish = Wish {
            runtime: self.config.runtime,
            image: &self.engine.image.id,
            guest: &guest,
            owner: &self.owner,
            user: boundary.identity.host_uid,
            limits: boundary.limits,
        };
        let mut job = plan.job.clone();
        let of_image = self.engine.image.variables.iter().filter(|(name, _)| !OURS.contains(&name.as_str()));
        job.environment.splice(0..0, of_image.cloned());
        let sandbox = run::make(self.docker().await?, &self.engine, wish, boundary, job).await?;
        Ok(Box::new(sandbox))
    }
}

/// Names a daemon: its process and when that began, so that a later one with the same number is another.
fn owner(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the other fields is in brackets and may hold anything; the 22nd field of all is the start.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
    let began = fields.and_then(|mut fields| fields.nth(19)).unwrap_or_default();
    format!("{pid}-{began}")
}

/// Removes the containers of daemons that are no more. The engine does that too, when their input closes.
async fn sweep(docker: &Docker) {
    let labels = std::collections::HashMap::from([("label".to_owned(), vec![OWNER.to_owned()])]);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&labels).build();
    let Ok(containers) = docker.list_containers(Some(options)).await else { return };
    for container in containers {
        let marked = container.labels.and_then(|labels| labels.get(OWNER).cloned());
        let (Some(marked), Some(id)) = (marked, container.id) else { continue };
        let pid = marked.split('-').next().and_then(|pid| pid.parse().ok());
        if pid.is_none_or(|pid| owner(pid) != marked) {
            tracing::info!(container = id, "a container of a daemon that is gone is removed");
            run::remove(docker, &id).await;
        }
    }
}

impl Provider for DockerProvider {
    fn describe(&self) -> Description {
        let (tier, grants) = match self.config.runtime {
            Runtime::Runc => (Tier::Container, true),
            Runtime::Runsc => (Tier::Kernel, false),
        };
        let (node, python) = (self.engine.node.is_some(), self.engine.python.is_some());
        let usual = self.config.allowance.description(NAME, tier, node, python);
        Description { environment: self.engine.image.id.clone(), supports_grants: grants, ..usual }
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        Box::pin(self.make(plan))
    }

    fn smoke_test(&self) -> BoxFuture<'_, Result<(), CreateError>> {
        Box::pin(smoke::smoke_test(self))
    }
}
