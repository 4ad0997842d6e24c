//! Provider `microvm`: a machine of the run's own, with a kernel of its own, in QEMU's machine type of that name. QEMU is
//! confined as a run of `native` is, and its network device is a tap in the gate. Tier `vm` where KVM executes the
//! machine's code, which a boot has to show; else QEMU translates it and the tier is `container`.
//!
//! ```text
//! daemon ── launcher ── child (pid 1, in the gate) ── QEMU ── machine: kernel ── guest program ── steps
//!    ▲  ▲                                              │ │        │
//!    │  └──────────────── monitor (QMP) ───────────────┘ └─ root ─┘ files, read-only
//!    └─────────────────── channel (a serial port of the machine) ──────────────────┘
//! ```

pub(crate) mod child;
mod config;
mod initramfs;
mod kernel;
mod limits;
mod machine;
mod measure;
mod monitor;
mod proof;
mod root;
mod smoke;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use freeboard_guest::machine::{INIT, MODULES, Settings};
use freeboard_policy::Tier;
use freeboard_wire::digest::hex;
use futures_util::future::BoxFuture;
use rustix::process::{getegid, geteuid};
use sha2::{Digest as _, Sha256};

pub use config::MicrovmConfig;
use proof::Proof;

use super::native::can_run;
use super::native::link::LazyLink;
use super::native::sandbox::{Interpreters, Measurement, NativeSandbox};
use super::program::{Program, find_guest};
use super::{Allowance, CreateError, Description, Plan, Provider, Sandbox};
use crate::child::launcher::Launcher;
use crate::isolate::kernel::{Accelerator, Kernel, Known, Microvm};
use crate::isolate::namespaces::{GUEST_ID, Identity};
use crate::isolate::view::View;
use crate::isolate::{Boundary, GatePorts, Limits};

/// The provider's name in configuration, evidence and answers.
pub const NAME: &str = "microvm";

const QEMU: &str = "qemu-system-x86_64";
const FOLDERS: [&str; 2] = ["/usr/bin", "/usr/local/bin"];

/// Makes machines through a launcher of its own.
#[derive(Debug)]
pub struct MicrovmProvider {
    config: MicrovmConfig,
    image: Arc<Image>,
    proof: Proof,
    view: View,
    tools: View,
    /// Programs that run snippets: absolute in the guest.
    node: Option<PathBuf>,
    python: Option<PathBuf>,
    link: LazyLink,
    next_identity: AtomicU32,
}

/// What every machine is made of.
#[derive(Debug)]
struct Image {
    qemu: Program,
    kernel: Program,
    release: String,
    pieces: Vec<(String, PathBuf)>,
    initramfs: Vec<u8>,
    initramfs_sha256: std::sync::OnceLock<String>,
}

/// The digests of an image, as evidence tells them.
struct Digests {
    qemu: String,
    kernel: String,
    initramfs: String,
}

impl Image {
    fn find(config: &MicrovmConfig, tools: &View) -> Result<Self, CreateError> {
        let qemu = find_qemu(config.qemu.as_deref(), tools)?;
        let kernel::Kernel { path, release, modules } = kernel::find(config.kernel.as_deref())?;
        let guest = find_guest(config.guest.as_deref())?;
        let module = |(number, path): (usize, PathBuf)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (format!("{}/{number:02}-{name}", MODULES.trim_start_matches('/')), path)
        };
        let mut pieces = vec![(INIT.trim_start_matches('/').to_owned(), guest.path)];
        pieces.extend(modules.into_iter().enumerate().map(module));
        let host = |what: String| CreateError::Host { what, help: "see docs/providers/microvm.md".into() };
        let initramfs = initramfs::build(&pieces)
            .map_err(|error| host(format!("cannot put the initramfs together: {error}")))?;
        let kernel = Program::at(path.clone())
            .map_err(|error| host(format!("cannot use the kernel `{}`: {error}", path.display())))?;
        Ok(Self { qemu, kernel, release, pieces, initramfs, initramfs_sha256: std::sync::OnceLock::new() })
    }

    /// Tens of megabytes are read, once: not on a thread that serves others.
    fn digests(&self) -> std::io::Result<Digests> {
        let initramfs = self.initramfs_sha256.get_or_init(|| hex(&Sha256::digest(&self.initramfs)));
        Ok(Digests {
            qemu: self.qemu.digest()?.to_owned(),
            kernel: self.kernel.digest()?.to_owned(),
            initramfs: initramfs.clone(),
        })
    }
}

/// QEMU finds its firmware and its parts relative to itself, so it must be where QEMU's own root shows it.
fn find_qemu(named: Option<&Path>, tools: &View) -> Result<Program, CreateError> {
    let missing = |what: String| CreateError::Host {
        what,
        help: "install QEMU (`apt-get install qemu-system-x86`), or name it with `microvm_qemu`".into(),
    };
    let usual = || FOLDERS.iter().map(|folder| Path::new(folder).join(QEMU)).find(|path| path.is_file());
    let path = named.map(Path::to_owned).or_else(usual);
    let path = path.ok_or_else(|| missing(format!("`{QEMU}` is not installed")))?;
    let shown = path.display().to_string();
    let program = Program::at(path).map_err(|error| missing(format!("cannot use `{shown}`: {error}")))?;
    if tools.on_host(&program.path).as_deref() != Some(&program.path) {
        return Err(missing(format!("`{shown}` is not below /usr, where QEMU's own root would show it")));
    }
    Ok(program)
}

impl MicrovmProvider {
    /// Looks for QEMU and a kernel, then forks the launcher. Called while the process has one thread.
    pub fn start(config: MicrovmConfig) -> Result<Self, CreateError> {
        let tools = tools()?;
        let image = Image::find(&config, &tools)?;
        let launcher = Launcher::start().map_err(|source| CreateError::Step {
            step: "fork the launcher (the process must have one thread)".into(),
            source,
        })?;
        Self::with(config, image, tools, launcher)
    }

    /// The same with a launcher that is there already.
    pub fn new(config: MicrovmConfig, launcher: Launcher) -> Result<Self, CreateError> {
        let tools = tools()?;
        let image = Image::find(&config, &tools)?;
        Self::with(config, image, tools, launcher)
    }

    fn with(
        config: MicrovmConfig,
        image: Image,
        tools: View,
        launcher: Launcher,
    ) -> Result<Self, CreateError> {
        let view = match &config.root {
            Some(root) => View::of_folder(root),
            None => View::of_host(&config.extra_read_only),
        };
        let view = view
            .map_err(|source| CreateError::Step { step: "look at the tools for the guest".into(), source })?;
        let (node, python) = (view.find_program("node"), view.find_program("python3"));
        let next_identity = AtomicU32::new(std::process::id());
        let proof = Proof::begin(&config.kvm);
        let link = LazyLink::new(launcher);
        Ok(Self { config, image: Arc::new(image), proof, view, tools, node, python, link, next_identity })
    }

    async fn machine(
        &self,
        accelerator: Accelerator,
        gate: bool,
        allowance: Allowance,
    ) -> Result<Microvm, CreateError> {
        let image = Arc::clone(&self.image);
        let digests = tokio::task::spawn_blocking(move || image.digests());
        let digests =
            digests.await.map_err(std::io::Error::other).flatten().map_err(|source| CreateError::Host {
                what: format!("cannot read what machines are made of: {source}"),
                help: "restart sandboxd after an update of QEMU or of the kernel".into(),
            })?;
        let Limits { memory_bytes, pids, disk_bytes, inodes, .. } = allowance.limits();
        let settings = Settings { memory_bytes, pids, disk_bytes, inodes, gate: gate.then(child::families) };
        let setup_limit_seconds = match &accelerator {
            Accelerator::Kvm { .. } => (!self.proof.is_proved()).then_some(limits::PROOF_SECONDS),
            Accelerator::Translated { .. } => Some(limits::TRANSLATED_SECONDS),
        };
        let known =
            |program: &Program, sha256| Known { path: program.path.clone(), file: program.identity, sha256 };
        Ok(Microvm {
            qemu: known(&self.image.qemu, digests.qemu),
            kernel: known(&self.image.kernel, digests.kernel),
            release: self.image.release.clone(),
            pieces: self.image.pieces.clone(),
            initramfs_sha256: digests.initramfs,
            tools: self.tools.clone(),
            accelerator,
            memory_mib: machine_mib(allowance),
            processors: self.processors(),
            words: settings.words(),
            setup_limit_seconds,
        })
    }

    async fn boundary(&self, plan: &Plan, accelerator: Accelerator) -> Result<Boundary, CreateError> {
        let prepared = plan.prepared.as_ref();
        let allowance = self.config.allowance.lowered(plan.job.less);
        let limits = self.limits(&accelerator, allowance);
        let machine = self.machine(accelerator, prepared.is_some(), allowance).await?;
        Ok(Boundary {
            run: plan.job.run.clone(),
            identity: self.identity(),
            view: self.view.clone(),
            limits,
            gate: prepared.map(|prepared| GatePorts { ports: prepared.ports.clone() }),
            ca_pem: prepared.map(|prepared| prepared.ca_pem.clone()).unwrap_or_default(),
            kernel: Some(Kernel::Microvm(Box::new(machine))),
        })
    }

    /// Root gives each run an unused id of the host; an ordinary user has only the own one. The group is KVM's where that
    /// is how QEMU may open it: a group that owns nothing else.
    fn identity(&self) -> Identity {
        let (host_uid, own_gid) = if geteuid().is_root() {
            let id = self.config.allowance.uid(self.next_identity.fetch_add(1, Ordering::Relaxed));
            (id, id)
        } else {
            (geteuid().as_raw(), getegid().as_raw())
        };
        let host_gid = self.proof.group().unwrap_or(own_gid);
        Identity { guest_uid: GUEST_ID, guest_gid: GUEST_ID, host_uid, host_gid }
    }

    fn processors(&self) -> u64 {
        self.config.allowance.cpu_milli().div_ceil(1000).clamp(1, limits::MOST_PROCESSORS)
    }

    /// Of the group around QEMU.
    fn limits(&self, accelerator: &Accelerator, allowance: Allowance) -> Limits {
        let translated = match accelerator {
            Accelerator::Kvm { .. } => 0,
            Accelerator::Translated { .. } => limits::TRANSLATED_MIB << 20,
        };
        Limits {
            memory_bytes: (machine_mib(allowance) << 20) + limits::QEMU_BYTES + translated,
            pids: limits::QEMU_THREADS + self.processors(),
            ..allowance.limits()
        }
    }

    async fn attempt(&self, plan: &Plan, accelerator: Accelerator) -> Result<NativeSandbox, CreateError> {
        let boundary = self.boundary(plan, accelerator).await?;
        let interpreters = Interpreters::of(self.node.as_deref(), self.python.as_deref());
        let image = Arc::clone(&self.image);
        let measurement: Measurement = Arc::new(move |expected| measure::measure(expected, &image.initramfs));
        NativeSandbox::create(self.link.get()?, boundary, plan.job.clone(), interpreters, measurement).await
    }

    /// With KVM where it is there. The first machine that boots with it proves it; when the first one does not, machines
    /// are translated from then on, and this run too unless only a machine will do.
    async fn make(&self, plan: &Plan) -> Result<NativeSandbox, CreateError> {
        let accelerator = self.proof.accelerator();
        let with_kvm = matches!(accelerator, Accelerator::Kvm { .. });
        match self.attempt(plan, accelerator).await {
            Ok(sandbox) => {
                if with_kvm {
                    self.proof.booted();
                }
                return Ok(sandbox);
            }
            Err(error) if with_kvm && !self.proof.is_proved() => {
                let why = crate::causes::chain(&error);
                tracing::warn!(
                    why,
                    "the first machine does not boot with KVM; machines are translated from now on"
                );
                self.proof.failed(&why);
            }
            Err(error) => return Err(error),
        }
        let accelerator = self.proof.accelerator();
        if plan.job.floor == Some(Tier::Vm)
            && let Accelerator::Translated { why, .. } = &accelerator
        {
            return Err(CreateError::Host {
                what: format!("the run needs tier `vm`, and there is none here: {why}"),
                help: "run sandboxd where KVM runs ordinary kernels".into(),
            });
        }
        self.attempt(plan, accelerator).await
    }
}

/// Memory of the machine around a run.
fn machine_mib(allowance: Allowance) -> u64 {
    (u64::from(allowance.memory_mib) + limits::KERNEL_MIB).max(limits::LEAST_MIB)
}

/// What QEMU itself is made of.
fn tools() -> Result<View, CreateError> {
    View::of_host(&[])
        .map_err(|source| CreateError::Step { step: "look at the tools that QEMU needs".into(), source })
}

impl Provider for MicrovmProvider {
    fn describe(&self) -> Description {
        let weaker = self.proof.why_not();
        let tier = if weaker.is_none() { Tier::Vm } else { Tier::Container };
        let (node, python) = (self.node.is_some(), self.python.is_some());
        Description { weaker, ..self.config.allowance.description(NAME, tier, node, python) }
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        Box::pin(async move {
            can_run(NAME, &plan.job.payload, self.node.is_some())?;
            let sandbox = self.make(plan).await?;
            Ok(Box::new(sandbox) as Box<dyn Sandbox>)
        })
    }

    fn ready_for<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), CreateError>> {
        Box::pin(async move {
            can_run(NAME, &plan.job.payload, self.node.is_some())?;
            self.boundary(plan, self.proof.accelerator()).await.map(drop)
        })
    }

    fn smoke_test(&self) -> BoxFuture<'_, Result<(), CreateError>> {
        Box::pin(smoke::smoke_test(self))
    }
}
