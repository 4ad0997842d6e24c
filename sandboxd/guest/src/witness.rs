//! What the first process sees of the kernel that it is in, before any user code is here. The daemon compares it with
//! what it knows of its own kernel and with what it asked for.

use std::fs;

use crate::user::StepUser;

/// Name, value, and whether it is as every sandbox requires.
pub(crate) type Fact = (String, String, bool);

/// Sees what can be seen. What cannot be read counts as not met.
pub(crate) fn facts(step_user: Option<StepUser>) -> Vec<Fact> {
    vec![kernel(), init(), user(step_user), capabilities(), no_new_privileges(), links(), writable()]
}

fn fact(name: &str, value: impl Into<String>, met: bool) -> Fact {
    (name.to_owned(), value.into(), met)
}

/// Whether it is another kernel than the host's only the host can say.
fn kernel() -> Fact {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    fact("guest_kernel", release.clone(), !release.is_empty())
}

fn init() -> Fact {
    let process = rustix::process::getpid();
    fact("guest_pid", process.as_raw_nonzero().to_string(), process.is_init())
}

/// Whose the steps will be.
fn user(step_user: Option<StepUser>) -> Fact {
    let uid = step_user.map_or_else(|| rustix::process::getuid().as_raw(), StepUser::uid);
    fact("guest_uid", uid.to_string(), uid != 0)
}

/// Nothing is in force, and no program that is executed gets anything: all sets but that of what this process may take up
/// again, to start a step as another user.
fn capabilities() -> Fact {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let sets: Vec<&str> =
        status.lines().filter(|line| line.starts_with("Cap") && !line.starts_with("CapPrm")).collect();
    let empty =
        |line: &&str| line.split_whitespace().nth(1).is_some_and(|set| set.bytes().all(|b| b == b'0'));
    let filled: Vec<&str> = sets.iter().copied().filter(|line| !empty(line)).collect();
    let value = if filled.is_empty() { "none".to_owned() } else { filled.join(" ") };
    fact("guest_capabilities", value, !sets.is_empty() && filled.is_empty())
}

fn no_new_privileges() -> Fact {
    let set = rustix::thread::no_new_privs().unwrap_or(false);
    fact("guest_no_new_privs", if set { "1" } else { "0" }, set)
}

/// The interfaces; which ones there may be is the host's to say.
fn links() -> Fact {
    let table = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let mut names: Vec<&str> =
        table.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect();
    names.sort_unstable();
    fact("guest_links", names.join(" "), names.contains(&"lo"))
}

/// File systems that may hold something and can be written; the kernel's own are left out.
fn writable() -> Fact {
    const OURS: [&str; 4] = ["/tmp", "/work", "/dev/shm", crate::protocol::CERTIFICATES];
    const KERNELS: [&str; 6] = ["proc", "sysfs", "devpts", "devtmpfs", "cgroup", "mqueue"];
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut places: Vec<&str> = table.lines().filter_map(|line| writable_place(line, &KERNELS)).collect();
    places.sort_unstable();
    let strange = places.iter().any(|place| !OURS.contains(place) && *place != "/dev");
    fact("guest_writable", places.join(" "), places.contains(&"/work") && !strange)
}

/// The place of a line of /proc/mounts that can be written.
fn writable_place<'a>(line: &'a str, kernels: &[&str]) -> Option<&'a str> {
    let mut fields = line.split(' ').skip(1);
    let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let read_only = options.split(',').any(|option| option == "ro");
    // Nothing can be stored below /proc, where a runtime covers files with the null device; below /sys a runtime mounts control
    // groups, which are root's, and no step is.
    let of_kernel = kernels.contains(&kind) || place.starts_with("/proc/") || place == "/sys/fs/cgroup";
    (!read_only && !of_kernel).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_which_file_systems_can_be_written() {
        let kernels = ["proc"];
        assert_eq!(writable_place("none /work tmpfs rw,size=1 0 0", &kernels), Some("/work"));
        assert_eq!(writable_place("none / 9p ro,trans=fd 0 0", &kernels), None);
        assert_eq!(writable_place("none /proc proc rw 0 0", &kernels), None);
        assert_eq!(writable_place("", &kernels), None);
    }

    #[test]
    fn an_ordinary_process_of_a_host_does_not_pass() {
        let facts = facts(None);
        let unmet = |name: &str| facts.iter().any(|(known, _, met)| known == name && !met);
        for name in ["guest_pid", "guest_writable"] {
            assert!(unmet(name), "{name} in {facts:?}");
        }
    }
}
