//! `freeboard doctor`: can the broker run here, and what is missing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use clap::Args;
use freeboard_control::{Client, PrepareRun};

use super::exit::with_causes;
use super::{ConfigFlags, Exit, terminal};
use crate::broker::Clock;
use crate::config::Config;
use crate::confine::Wanted;
use crate::credential::unready;
use crate::limits::{BUFFER_BYTES, DOCTOR_PATIENCE, LIVE_PATIENCE, PROBE_PATIENCE};
use crate::privileges;
use crate::record::log_files;
use crate::reload;
use crate::tls::CertificateAuthority;

/// Check configuration, CA, policy, audit log, user and socket; changes nothing
#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    config: ConfigFlags,
    /// Folder of policy files
    #[arg(long, value_name = "FOLDER")]
    policy: Option<PathBuf>,
}

/// What was found: a fact, or a problem and how to mend it.
type Found = Result<String, (String, String)>;

/// One thing that is looked at.
type Check = fn(&Config) -> Found;

impl Doctor {
    pub(super) fn run(self) -> Exit {
        let config = match self.config.load(&[("policy", self.policy.as_ref())]) {
            Ok(config) => config,
            Err(exit) => return exit,
        };
        let checks: [(&str, Check); 9] = [
            ("CA", ca),
            ("policy", policy),
            ("credentials", credentials),
            ("audit log", audit),
            ("user", user),
            ("confinement", confinement),
            ("control socket", socket),
            ("readiness", readiness),
            ("open files", open_files),
        ];
        let mut text = String::new();
        let mut problems = 0;
        for (name, check) in checks {
            match check(&config) {
                Ok(fact) => text.push_str(&format!("ok       {name}: {fact}\n")),
                Err((problem, help)) => {
                    problems += 1;
                    text.push_str(&format!("problem  {name}: {problem}\n         help: {help}\n"));
                }
            }
        }
        match (terminal::print(&text), problems) {
            (Exit::Success, 0) => Exit::Success,
            (Exit::Success, _) => Exit::Problems,
            (exit, _) => exit,
        }
    }
}

fn ca(config: &Config) -> Found {
    let now = Clock.now().unix_seconds();
    let ca = CertificateAuthority::load(&config.ca_certificate, &config.ca_key, now);
    let help = "`freeboard ca init` makes a CA; an existing key needs mode 0600".to_owned();
    let ca = ca.map_err(|error| (with_causes(&error), help))?;
    let days = (ca.validity().1 - now) / 86_400;
    if days < 30 {
        let help = "make a new one in good time, and give it to the guests".to_owned();
        return Err((format!("`{}` ends in {days} days", config.ca_certificate.display()), help));
    }
    Ok(format!("`{}`, {days} days left", config.ca_certificate.display()))
}

fn policy(config: &Config) -> Found {
    let help = || "`freeboard policy check` shows every problem".to_owned();
    let read = reload::read(&config.policy).map_err(|error| (with_causes(&error), help()))?;
    let commit = read.snapshot.identity.commit.as_deref().unwrap_or("no git work tree").to_owned();
    Ok(format!(
        "`{}`: {} files, {} warnings, digest {}, commit {commit}",
        config.policy.display(),
        read.files,
        read.warnings.len(),
        read.snapshot.policy.digest()
    ))
}

/// Whether every secret of the policy can be used as it is. What this user may not look at is no problem yet: the broker's
/// own user may.
fn credentials(config: &Config) -> Found {
    // A policy that cannot be read is the problem of another line.
    let Ok(read) = reload::read(&config.policy) else { return Ok("unknown without a policy".to_owned()) };
    let policy = &read.snapshot.policy;
    let (hidden, unready): (Vec<_>, Vec<_>) = unready(policy).into_iter().partition(|found| found.hidden);
    if !unready.is_empty() {
        let problems = unready.iter().map(|found| format!("`{}`: {}", found.credential, found.problem));
        let help = "requests that need them are refused with `credential_unavailable`; no reload is needed once they are mended";
        return Err((problems.collect::<Vec<_>>().join("; "), help.to_owned()));
    }
    let all = policy.credentials().count();
    Ok(match hidden.len() {
        0 => format!("{all}, each with a secret that can be used"),
        hidden => {
            format!("{all}, {hidden} of them not for this user to look at; ask again as the broker's user")
        }
    })
}

fn audit(config: &Config) -> Found {
    let folder = &config.audit.folder;
    if !folder.exists() {
        return Ok(format!("`{}` will be made", folder.display()));
    }
    let help = || format!("the broker's user must be able to read and write `{}`", folder.display());
    let files = log_files(folder).map_err(|error| (with_causes(&error), help()))?;
    let access = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK);
    access.map_err(|error| (format!("`{}` cannot be written: {error}", folder.display()), help()))?;
    let free = rustix::fs::statvfs(folder).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    if free < config.audit.file_bytes {
        let help = "when the disk is full, every request is refused: free some space".to_owned();
        return Err((format!("only {} MiB are free in `{}`", free >> 20, folder.display()), help));
    }
    Ok(format!("`{}`: {} files, {} MiB free", folder.display(), files.len(), free >> 20))
}

fn user(config: &Config) -> Found {
    let help = "`useradd --system freeboard`, or set the option `user`".to_owned();
    let identity = privileges::identity(&config.user).map_err(|error| (with_causes(&error), help.clone()))?;
    match (identity.uid.as_raw(), identity.change) {
        (0, _) => Err(("the broker would keep root".to_owned(), help)),
        (uid, true) => Ok(format!("becomes uid {uid}")),
        (uid, false) => Ok(format!("stays uid {uid}")),
    }
}

fn confinement(config: &Config) -> Found {
    match (config.confine, crate::confine::files::is_available()) {
        (Wanted::Off, _) => {
            let help = "set `confine` to \"available\" or \"required\"".to_owned();
            Err(("off: a fault of the broker opens every file of its user".to_owned(), help))
        }
        (_, true) => Ok("files (Landlock), system calls (seccomp)".to_owned()),
        (Wanted::Available, false) => Ok("system calls (seccomp) only: this kernel, or the container around us, has no Landlock; `confine = \"required\"` would not start".to_owned()),
        (Wanted::Required, false) => {
            let help = "a kernel with Landlock (5.13 or later, `lsm=landlock,…`), or `confine = \"available\"`".to_owned();
            Err(("this kernel cannot keep the broker to its files (Landlock)".to_owned(), help))
        }
    }
}

/// A connection proves nothing: a service manager holds the socket also while no broker runs.
fn socket(config: &Config) -> Found {
    let path = config.control_socket.display();
    if std::os::unix::net::UnixStream::connect(&config.control_socket).is_err() {
        return Ok(format!("`{path}`: nobody serves it now"));
    }
    let asked = async {
        let client = Client::connect(&config.control_socket).await?;
        client.prepare(PrepareRun { caller: None, grants: Vec::new(), session: false }).await
    };
    let answered = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map(|runtime| runtime.block_on(async { tokio::time::timeout(DOCTOR_PATIENCE, asked).await }));
    match answered {
        Ok(Ok(Ok(_))) => Ok(format!("`{path}`: a broker serves it")),
        Ok(Ok(Err(error))) => Err((
            format!("`{path}` is held, but no broker answers: {}", with_causes(&error)),
            "`systemctl status freeboard.service` says why it does not run; other users than root and its own need `control_uids`".to_owned(),
        )),
        Ok(Err(_)) | Err(_) => Err((
            format!("`{path}` is held, but no broker answered within {} s", DOCTOR_PATIENCE.as_secs()),
            "`systemctl status freeboard.service` says why it does not run".to_owned(),
        )),
    }
}

/// What a running broker says of itself: it proves an allowed and a refused request first.
fn readiness(config: &Config) -> Found {
    let Some(address) = config.metrics.listen else {
        return Ok("not asked: `metrics_listen` is off".to_owned());
    };
    let Ok(stream) = TcpStream::connect_timeout(&address, DOCTOR_PATIENCE) else {
        return Ok(format!("{address}: nobody serves it now"));
    };
    let asked = ask_readiness(stream, address);
    let answer = asked.map_err(|error| {
        let help = "another program may have the address: see `metrics_listen`".to_owned();
        (format!("{address} does not answer: {error}"), help)
    })?;
    let said = answer.split("\r\n\r\n").nth(1).unwrap_or_default().trim();
    if answer.starts_with("HTTP/1.1 200 ") && said.starts_with("ready") {
        Ok(format!("{address}: {said}"))
    } else {
        let help = "the broker's own log says more; requests may be refused until it is mended".to_owned();
        Err((format!("{address}: {}", said.escape_default()), help))
    }
}

fn ask_readiness(mut stream: TcpStream, address: SocketAddr) -> std::io::Result<String> {
    let patience = Some(PROBE_PATIENCE + LIVE_PATIENCE + DOCTOR_PATIENCE);
    stream.set_read_timeout(patience)?;
    stream.write_all(
        format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    let bound = u64::try_from(BUFFER_BYTES).unwrap_or(u64::MAX);
    stream.take(bound).read_to_string(&mut answer)?;
    Ok(answer)
}

fn open_files(_: &Config) -> Found {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    match limit {
        Some(most) if most < crate::limits::OPEN_FILES_WANTED => {
            let help = format!(
                "raise the hard limit to {} (LimitNOFILE=, ulimit -Hn)",
                crate::limits::OPEN_FILES_WANTED
            );
            Err((format!("at most {most}"), help))
        }
        Some(most) => Ok(format!("at most {most}")),
        None => Ok("no limit".to_owned()),
    }
}
