//! What is seen of a worker from outside, in /proc, before any code is released.
//!
//! Twice: once when the worker has locked itself down (namespaces, descriptors, program, what it tried itself), and
//! before every run what the kernel says of the process then. A locked-down process cannot regain any of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use freeboard_control::{Evidence, Fact};
use freeboard_policy::Tier;

use super::{ENGINE_SHA256, NAME};
use crate::kernel_file;

/// Room for /proc/PID/status in bytes; it has about 1,500.
const STATUS_BYTES: usize = 8192;
/// Threads of a worker: the one that runs code and the one that ticks.
const THREADS: &str = "2";
/// The kernel counts a thread a moment longer than its end can be waited for (`release_task` comes after the futex of
/// pthread_join(3) is woken), and the worker loads its engine on a thread that ends: so often, and so long between two
/// looks, the count is taken again before it stands.
const THREAD_LOOKS: u32 = 50;
const THREAD_LOOK_PAUSE: Duration = Duration::from_millis(1);

const NAMESPACES: [&str; 6] = ["user", "net", "mnt", "ipc", "uts", "cgroup"];

/// What a worker is compared with. Read while it is still locking itself down.
#[derive(Debug)]
pub(super) struct Ours {
    program: (u64, u64),
    namespaces: [io::Result<PathBuf>; NAMESPACES.len()],
}

impl Ours {
    /// `program`: what the worker was started from.
    pub(super) fn read(program: &Path) -> io::Result<Self> {
        let program = std::fs::metadata(program)?;
        let namespaces = NAMESPACES.map(|kind| std::fs::read_link(format!("/proc/self/ns/{kind}")));
        Ok(Self { program: (program.dev(), program.ino()), namespaces })
    }
}

/// One worker as measured.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    status: Option<File>,
    constant: Vec<Fact>,
}

impl Boundary {
    /// Measures what cannot change any more. `report` is what the worker says of itself.
    pub(super) fn of(pid: u32, ours: &Ours, report: &str) -> io::Result<Self> {
        let status = File::open(format!("/proc/{pid}/status"))?;
        let mut constant = vec![fact("pid", pid.to_string(), true), program(pid, ours)?];
        let pairs = NAMESPACES.iter().zip(&ours.namespaces);
        constant.extend(pairs.map(|(kind, own)| namespace(pid, kind, own.as_deref().ok())));
        constant.push(descriptors(pid));
        constant.extend(limits(pid)?);
        constant.extend(reported(report));
        Ok(Self { status: Some(status), constant })
    }

    /// Measures the rest, now, and puts all together.
    pub(super) fn evidence(&self) -> io::Result<Evidence> {
        let status = self.status.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut facts = of_status(&read_status(status)?);
        for _ in 1..THREAD_LOOKS {
            if facts.iter().all(|fact| fact.met || fact.name != "threads") {
                break;
            }
            std::thread::sleep(THREAD_LOOK_PAUSE);
            facts = of_status(&read_status(status)?);
        }
        facts.extend(self.constant.iter().cloned());
        Ok(Evidence { provider: NAME.to_owned(), tier: Tier::Process, facts })
    }
}

fn read_status(status: &File) -> io::Result<String> {
    let mut buffer = [0; STATUS_BYTES];
    let length = status.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned())
}

fn fact(name: &str, value: impl Into<String>, met: bool) -> Fact {
    Fact { name: name.to_owned(), value: value.into(), met }
}

/// What the kernel says of the process, each with what it has to be.
fn of_status(text: &str) -> Vec<Fact> {
    let fields: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or("unknown");
    let none =
        |name: &str| fact(&name.to_lowercase(), field(name), field(name).bytes().all(|byte| byte == b'0'));
    let uid = field("Uid").split_whitespace().next().unwrap_or("unknown");
    vec![
        fact("seccomp_mode", field("Seccomp"), field("Seccomp") == "2"),
        fact("no_new_privs", field("NoNewPrivs"), field("NoNewPrivs") == "1"),
        none("CapInh"),
        none("CapPrm"),
        none("CapEff"),
        none("CapAmb"),
        fact("threads", field("Threads"), field("Threads") == THREADS),
        fact("uid", uid, uid != "0" && uid != "unknown"),
    ]
}

/// The worker runs the very file that it was started from: this daemon's own.
fn program(pid: u32, ours: &Ours) -> io::Result<Fact> {
    let theirs = std::fs::metadata(format!("/proc/{pid}/exe"))?;
    let same = ours.program == (theirs.dev(), theirs.ino());
    Ok(fact("program", if same { "sandboxd" } else { "another" }, same))
}

/// Informative: a kernel or container may permit no namespaces, and the filter stands without them.
fn namespace(pid: u32, kind: &str, own: Option<&Path>) -> Fact {
    let value = match (own, std::fs::read_link(format!("/proc/{pid}/ns/{kind}"))) {
        (Some(ours), Ok(theirs)) if ours == theirs => "shared".to_owned(),
        (Some(_), Ok(theirs)) => format!("own {}", theirs.display()),
        _ => "unreadable".to_owned(),
    };
    fact(&format!("namespace_{kind}"), value, true)
}

/// Sockets, /dev/null, the image of the engine's memory and the kernel's list of written pages; nothing else.
fn descriptors(pid: u32) -> Fact {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return fact("descriptors", "unreadable", false);
    };
    let mut kinds: Vec<String> = entries
        .flatten()
        .map(|entry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default().to_string_lossy().into_owned();
            target.split(':').next().unwrap_or_default().trim_start_matches("/memfd").to_owned()
        })
        .collect();
    kinds.sort();
    let expected = |kind: &String| {
        let pagemap = kind.ends_with("/pagemap") && kind.starts_with("/proc/") || kind == "/pagemap";
        matches!(kind.as_str(), "/dev/null" | "socket" | "") || pagemap
    };
    let met = kinds.iter().all(expected) && kinds.iter().filter(|kind| *kind == "socket").count() == 1;
    fact("descriptors", kinds.join(" "), met)
}

fn limits(pid: u32) -> io::Result<Vec<Fact>> {
    let text = kernel_file::text(format!("/proc/{pid}/limits"))?;
    let limit = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().nth(1).map(str::to_owned))
    };
    let rows = [
        ("rlimit_core", "Max core file size"),
        ("rlimit_files", "Max open files"),
        ("rlimit_address_space", "Max address space"),
    ];
    Ok(rows
        .map(|(name, row)| {
            let value = limit(row).unwrap_or_else(|| "unknown".to_owned());
            let met = value.parse::<u64>().is_ok();
            fact(name, value, met)
        })
        .into())
}

/// What the worker found when it tried the forbidden itself. Trusted code of ours, before any of the guest's.
fn reported(report: &str) -> Vec<Fact> {
    report
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| {
            let met = match name {
                "engine_sha256" => value == ENGINE_SHA256,
                "files" => value == "denied",
                "network" => value == "denied",
                _ => true,
            };
            fact(name, value, met)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Name:\tsandboxd\nUid:\t65534\t65534\t65534\t65534\nThreads:\t2\nCapInh:\t0000000000000000\n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n\
        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    fn unmet(text: &str) -> Vec<String> {
        of_status(text).into_iter().filter(|fact| !fact.met).map(|fact| fact.name).collect()
    }

    #[test]
    fn accepts_a_locked_down_process() {
        assert!(unmet(GOOD).is_empty());
    }

    #[test]
    fn notices_each_missing_wall() {
        for (from, to, name) in [
            ("Seccomp:\t2", "Seccomp:\t0", "seccomp_mode"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "no_new_privs"),
            ("CapEff:\t0000000000000000", "CapEff:\t0000000000000100", "capeff"),
            ("CapAmb:\t0000000000000000\n", "", "capamb"),
            ("Threads:\t2", "Threads:\t3", "threads"),
            ("Uid:\t65534", "Uid:\t0", "uid"),
        ] {
            assert_eq!(unmet(&GOOD.replace(from, to)), [name]);
        }
        assert_eq!(unmet("").len(), 8);
    }
}
