//! Provider `native`: a process on the host's kernel behind namespaces, a private read-only root, a system call
//! allow-list, Landlock, no capabilities and control-group limits. Tier `container`. Works without root.

mod channel;
pub(in crate::provider) mod config;
pub(in crate::provider) mod link;
mod outcome;
pub(in crate::provider) mod sandbox;
mod session;
pub(in crate::provider) mod smoke;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use freeboard_policy::Tier;
use futures_util::future::BoxFuture;
use rustix::process::{getegid, geteuid};

pub use config::NativeConfig;
use link::LazyLink;
use sandbox::{Interpreters, NativeSandbox};

use super::{CreateError, Description, Plan, Provider, Sandbox, Service};
use crate::child::launcher::Launcher;
use crate::isolate::namespaces::{GUEST_ID, Identity};
use crate::isolate::view::View;
use crate::isolate::{Boundary, GatePorts};
use crate::job::Payload;

/// The provider's name in configuration, evidence and answers.
pub const NAME: &str = "native";

/// Makes sandboxes through the launcher.
#[derive(Debug)]
pub struct NativeProvider {
    config: NativeConfig,
    view: View,
    /// Programs that run snippets: absolute in the guest.
    node: Option<PathBuf>,
    python: Option<PathBuf>,
    link: LazyLink,
    next_identity: AtomicU32,
}

impl NativeProvider {
    /// Forks the launcher and looks at the host's tools. Called while the process has one thread.
    pub fn start(config: NativeConfig, service: Service) -> Result<Self, CreateError> {
        let link = LazyLink::of(service, Some(config.allowance.limits()))?;
        Self::with(config, link)
    }

    /// Looks at the host's tools (or the given root) and takes over the launcher. Needs no runtime yet.
    pub fn new(config: NativeConfig, launcher: Launcher) -> Result<Self, CreateError> {
        Self::with(config, LazyLink::new(launcher))
    }

    fn with(config: NativeConfig, link: LazyLink) -> Result<Self, CreateError> {
        if geteuid().is_root() {
            config.check_ids(&std::fs::read_to_string("/etc/passwd").unwrap_or_default())?;
        }
        config.check_places()?;
        let view = match &config.root {
            Some(root) => View::of_folder(root),
            None => View::of_host(&config.extra_read_only),
        };
        let step = |step: &str| {
            let step = step.to_owned();
            move |source| CreateError::Step { step, source }
        };
        let view = view.map_err(step("look at the tools for the guest"))?;
        let (node, python) = (view.find_program("node"), view.find_program("python3"));
        let next_identity = AtomicU32::new(std::process::id());
        Ok(Self { config, view, node, python, link, next_identity })
    }

    fn boundary(&self, plan: &Plan) -> Boundary {
        let prepared = plan.prepared.as_ref();
        Boundary {
            run: plan.job.run.clone(),
            identity: self.identity(),
            view: self.view.clone(),
            limits: self.config.allowance.lowered(plan.job.less).limits(),
            gate: prepared.map(|prepared| GatePorts { ports: prepared.ports.clone() }),
            ca_pem: prepared.map(|prepared| prepared.ca_pem.clone()).unwrap_or_default(),
            kernel: None,
        }
    }

    /// Root gives each run another unused id of the host; an ordinary user has only the own one.
    fn identity(&self) -> Identity {
        let guest = if self.config.guest_root { 0 } else { GUEST_ID };
        let (host_uid, host_gid) = if geteuid().is_root() {
            let id = self.config.allowance.uid(self.next_identity.fetch_add(1, Ordering::Relaxed));
            (id, id)
        } else {
            (geteuid().as_raw(), getegid().as_raw())
        };
        Identity { guest_uid: guest, guest_gid: guest, host_uid, host_gid }
    }
}

/// Whether a provider that runs programs of the guest's tools takes this payload; `node`: Node is among them.
pub(in crate::provider) fn can_run(
    provider: &'static str,
    payload: &Payload,
    node: bool,
) -> Result<(), CreateError> {
    let missing = |what: &str| CreateError::Unsupported { provider, what: what.into() };
    match payload {
        Payload::JavaScript { .. } if !node => {
            Err(missing("JavaScript: there is no `node` among the guest's tools"))
        }
        Payload::Command { argv } if argv.is_empty() => Err(missing("an empty command")),
        Payload::Cell { .. } => Err(missing("a cell outside a session")),
        _ => Ok(()),
    }
}

impl Provider for NativeProvider {
    fn describe(&self) -> Description {
        self.config.allowance.description(NAME, Tier::Container, self.node.is_some(), self.python.is_some())
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        Box::pin(async move {
            can_run(NAME, &plan.job.payload, self.node.is_some())?;
            let boundary = self.boundary(plan);
            let sandbox = NativeSandbox::create(
                self.link.get()?,
                boundary,
                plan.job.clone(),
                Interpreters::of(self.node.as_deref(), self.python.as_deref()),
                Arc::new(crate::evidence::measure),
            )
            .await?;
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }

    fn ready_for<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), CreateError>> {
        Box::pin(std::future::ready(can_run(NAME, &plan.job.payload, self.node.is_some())))
    }

    fn smoke_test(&self) -> BoxFuture<'_, Result<(), CreateError>> {
        Box::pin(smoke::try_forbidden(self, smoke::SCRIPT, smoke::LIMIT))
    }
}
