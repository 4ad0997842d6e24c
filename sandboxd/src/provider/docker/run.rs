//! Makes the container of one run: created, joined with our channel, started, given its gate, ready.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, InspectContainerOptions,
    RemoveContainerOptionsBuilder, StartContainerOptions, WaitContainerOptionsBuilder,
};
use freeboard_control::Door;
use freeboard_guest::protocol::Kind;
use freeboard_netns::{CatchAll, Families, Form, GateSpec, Plan as GatePlan, apply_here};
use futures_util::StreamExt as _;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::container::{Wish, body};
use super::engine::{Engine, failed};
use super::{evidence, limits};
use crate::child::setup::door;
use crate::isolate::Boundary;
use crate::isolate::cgroup::{Group, Usage, Version};
use crate::job::Job;
use crate::provider::CreateError;
use crate::provider::native::sandbox::{Interpreters, Measurement, NativeSandbox, Parts};

/// A container that is removed again unless it was handed over.
struct Made {
    docker: Docker,
    id: String,
    kept: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let (docker, id) = (self.docker.clone(), std::mem::take(&mut self.id));
        // Whoever drops it is inside the runtime; without one, the engine removes it when its input closes.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { remove(&docker, &id).await });
        }
    }
}

/// Ends and removes a container. One that is gone already is what was wanted.
pub(super) async fn remove(docker: &Docker, id: &str) {
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    let _ = docker.remove_container(id, Some(options)).await;
}

/// The steps in order.
pub(super) async fn make(
    docker: &Docker,
    engine: &Arc<Engine>,
    wish: Wish<'_>,
    boundary: Boundary,
    job: Job,
) -> Result<NativeSandbox, CreateError> {
    let step = |step: &str| {
        let step = step.to_owned();
        move |source: io::Error| CreateError::Step { step, source }
    };
    let name = format!("freeboard-{}", boundary.run);
    let options = CreateContainerOptionsBuilder::default().name(&name).build();
    let created = docker.create_container(Some(options), body(&wish)).await;
    let id = created.map_err(|error| failed("create the container", &error))?.id;
    let mut made = Made { docker: docker.clone(), id, kept: false };
    let options = AttachContainerOptionsBuilder::default().stream(true).stdin(true).stdout(true).build();
    // Before it starts: what it says first must not be lost.
    let attached = docker.attach_container(&made.id, Some(options)).await;
    let attached = attached.map_err(|error| failed("attach to the container", &error))?;
    let started = docker.start_container(&made.id, None::<StartContainerOptions>).await;
    started.map_err(|error| failed("start the container", &error))?;
    let found = docker.inspect_container(&made.id, None::<InspectContainerOptions>).await;
    let found = found.map_err(|error| failed("inspect the container", &error))?;
    let pid = found.state.as_ref().and_then(|state| state.pid).and_then(|pid| i32::try_from(pid).ok());
    let gone = || step("find the container's process")(io::Error::from(io::ErrorKind::NotFound));
    let pid = pid.filter(|pid| *pid > 1).ok_or_else(gone)?;
    let pidfd = Pid::from_raw(pid).ok_or_else(gone)?;
    let pidfd = pidfd_open(pidfd, PidfdFlags::empty())
        .map_err(io::Error::from)
        .map_err(step("watch the container"))?;
    // The number could be another's by now; the descriptor cannot, and this is looked at after it was opened.
    let group = group_of(pid, &made.id).map_err(step("find the container's control group"))?;

    let ports = boundary.gate.as_ref().map(|gate| gate.ports.clone());
    let doors = match ports {
        None => Vec::new(),
        Some(ports) => tokio::task::spawn_blocking(move || gate(pid, ports))
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(step("make the gate in the container's network"))?,
    };
    let channel = bridge(attached).map_err(step("make the channel to the run"))?;
    let said = evidence::said(engine, wish.runtime, &found);
    let measurement: Measurement = {
        let (engine, runtime) = (Arc::clone(engine), wish.runtime);
        Arc::new(move |expected| evidence::measure(expected, &engine, runtime, &said))
    };
    let removed = removal(docker.clone(), made.id.clone());
    let interpreters = Interpreters::of(engine.node.as_deref(), engine.python.as_deref());
    let ca_pem = boundary.ca_pem.clone();
    let parts =
        Parts { boundary, job, interpreters, measurement, channel, doors, pid, pidfd, group, gone: removed };
    let mut sandbox = NativeSandbox::over(parts, limits::READY_LIMIT).await?;
    for (path, content) in certificates(&ca_pem) {
        let file =
            freeboard_guest::protocol::encode_file(&path, &content).map_err(step("name a certificate"))?;
        sandbox.say(Kind::Place, &file).await.map_err(step("send the certificates"))?;
    }
    made.kept = true;
    Ok(sandbox)
}

/// Tells when the engine has removed the container.
fn removal(docker: Docker, id: String) -> oneshot::Receiver<Usage> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let options = WaitContainerOptionsBuilder::default().condition("removed").build();
        let mut waiting = Box::pin(docker.wait_container(&id, Some(options)));
        // Its status, or an error because it is gone already: both are the end. What it used was read before.
        let _ = waiting.next().await;
        let _ = sender.send(Usage::default());
    });
    receiver
}

/// Makes the gate inside, on a thread of its own that enters the container's network and ends.
fn gate(pid: i32, ports: Vec<u16>) -> io::Result<Vec<(Door, OwnedFd)>> {
    let network = File::open(format!("/proc/{pid}/ns/net"))?;
    let ipv6 = std::path::Path::new("/proc/net/if_inet6").exists();
    let families = if ipv6 { Families::Both } else { Families::V4 };
    let spec = GateSpec { form: Form::Loopback, ports, families, catch_all: CatchAll::WhereOffered };
    let plan = GatePlan::new(&spec).map_err(io::Error::other)?;
    let thread = std::thread::Builder::new().name("docker-gate".into()).spawn(move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        apply_here(&plan).map_err(|error| io::Error::other(crate::causes::chain(&error)))
    })?;
    let gate = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the gate panicked")))?;
    Ok(gate.doors.into_iter().map(|(kind, socket)| (door(kind), socket)).collect())
}

/// The engine's control group of a container, which its name must show.
fn group_of(pid: i32, id: &str) -> io::Result<Group> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let root = PathBuf::from("/sys/fs/cgroup");
    let place = |controller: &str| {
        table.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (names, path) = (fields.next()?, fields.next()?);
            let named = names.split(',').any(|name| name == controller) && path.contains(id);
            named.then(|| (names.to_owned(), path.trim_start_matches('/').to_owned()))
        })
    };
    let of = |controller: &str| {
        let (names, path) = place(controller)?;
        let folders = [names.as_str(), controller].map(|name| root.join(name).join(&path));
        folders.into_iter().find(|folder| folder.is_dir())
    };
    if let (Some(memory), Some(pids)) = (of("memory"), of("pids")) {
        return Ok(Group { version: Version::V1, memory, pids, cpu: of("cpu") });
    }
    let Some((_, path)) = place("") else { return Err(io::ErrorKind::NotFound.into()) };
    let folder = root.join(path);
    Ok(Group { version: Version::V2, memory: folder.clone(), pids: folder.clone(), cpu: Some(folder) })
}

/// Joins the engine's streams with a socket: what the container says comes out of it, what is written goes to it.
fn bridge(attached: AttachContainerResults) -> io::Result<OwnedFd> {
    let (ours, theirs) = Socket::pair()?;
    ours.set_nonblocking(true)?;
    let (mut from_us, mut to_us) = UnixStream::from_std(ours)?.into_split();
    let AttachContainerResults { mut output, input } = attached;
    let mut input: Pin<Box<dyn tokio::io::AsyncWrite + Send>> = input;
    // Each ends with its stream: with the container, or when the other end of the socket is dropped.
    tokio::spawn(async move {
        while let Some(Ok(said)) = output.next().await {
            if let LogOutput::StdOut { message } = said
                && to_us.write_all(&message).await.is_err()
            {
                break;
            }
        }
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; limits::READ_BYTES];
        while let Ok(read @ 1..) = from_us.read(&mut buffer).await {
            let sent = input.write_all(buffer.get(..read).unwrap_or_default()).await;
            if sent.is_err() || input.flush().await.is_err() {
                break;
            }
        }
        let _ = input.shutdown().await;
    });
    Ok(theirs.into())
}

/// The files below /etc/ssl: the host's roots with ours, and ours alone.
fn certificates(ca_pem: &str) -> Vec<(String, Vec<u8>)> {
    let mut bundle = crate::isolate::etc::host_bundle().unwrap_or_default();
    bundle.extend_from_slice(b"\n");
    bundle.extend_from_slice(ca_pem.as_bytes());
    let openssl = b"[req]\ndistinguished_name = req_distinguished_name\n[req_distinguished_name]\n".to_vec();
    let mut files = vec![
        ("certs/ca-certificates.crt".to_owned(), bundle.clone()),
        ("cert.pem".to_owned(), bundle),
        ("openssl.cnf".to_owned(), openssl),
    ];
    if !ca_pem.is_empty() {
        files.push(("freeboard-ca.pem".to_owned(), ca_pem.as_bytes().to_vec()));
    }
    files
}
