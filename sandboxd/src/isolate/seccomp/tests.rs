use super::filter::tests::judge;
use super::filter::{ARCHITECTURE, X32_BIT};
use super::*;

fn ours(number: libc::c_long, arguments: &[u64]) -> u32 {
    judge(&compile(), ARCHITECTURE, u32::try_from(number).unwrap(), arguments)
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
}

#[test]
fn every_entry_of_the_lists_gets_its_answer() {
    for (name, number, _) in ALLOWED {
        assert_eq!(ours(*number, &[]), ALLOW, "{name}");
    }
    for (name, number, errno, _) in REFUSED {
        assert_eq!(ours(*number, &[]), refuse(*errno), "{name}");
    }
    for (name, number, _) in IGNORED {
        assert_eq!(ours(*number, &[]), refuse(0), "{name}");
    }
}

#[test]
fn no_call_is_on_two_lists() {
    let numbers = ALLOWED.iter().map(|entry| entry.1);
    let numbers = numbers.chain(REFUSED.iter().map(|entry| entry.1));
    let numbers = numbers.chain(IGNORED.iter().map(|entry| entry.1));
    let mut numbers: Vec<_> = numbers.chain(CONDITIONAL.iter().map(|entry| entry.number)).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
}

#[test]
fn unknown_calls_do_not_exist() {
    for number in [470, 500, 1_000, 100_000, 0x3fff_ffff] {
        assert_eq!(ours(number, &[]), refuse(libc::ENOSYS), "{number}");
    }
}

#[test]
fn f05_other_architectures_are_killed_and_x32_does_not_exist() {
    let program = compile();
    assert_eq!(judge(&program, 0x4000_0003, 11, &[]), libc::SECCOMP_RET_KILL_PROCESS);
    assert_eq!(judge(&program, ARCHITECTURE, X32_BIT, &[]), refuse(libc::ENOSYS));
    assert_eq!(judge(&program, ARCHITECTURE, X32_BIT | 0x3b, &[]), refuse(libc::ENOSYS));
}

#[test]
fn f05_clone_makes_threads_and_no_namespaces() {
    let clone = libc::SYS_clone;
    assert_eq!(ours(clone, &[0x003d_0f00]), ALLOW, "a thread");
    assert_eq!(ours(clone, &[17]), ALLOW, "a process");
    for (name, flag) in crate::isolate::namespaces::KINDS {
        let flag = u64::from(flag.cast_unsigned());
        assert_eq!(ours(clone, &[flag | 0x11]), refuse(libc::EPERM), "{name}");
    }
}

#[test]
fn d27_sockets_of_the_internet_and_unix_only() {
    let socket = |family: i32, kind: i32, protocol: i32| {
        let word = |value: i32| u64::from(value.cast_unsigned());
        ours(libc::SYS_socket, &[word(family), word(kind), word(protocol)])
    };
    assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0), ALLOW);
    assert_eq!(socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP), ALLOW);
    assert_eq!(socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0), ALLOW);
    assert_eq!(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP), refuse(libc::EPERM));
    assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM, 262), refuse(libc::EPROTONOSUPPORT));
    for family in [libc::AF_PACKET, libc::AF_NETLINK, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH] {
        assert_eq!(socket(family, libc::SOCK_RAW, 0), refuse(libc::EPERM), "{family}");
    }
    assert_eq!(ours(libc::SYS_socketpair, &[1, 1, 0]), ALLOW);
    assert_eq!(ours(libc::SYS_socketpair, &[2, 1, 0]), refuse(libc::EPERM));
}

#[test]
fn terminals_devices_and_personalities_are_looked_at() {
    assert_eq!(ours(libc::SYS_ioctl, &[0, 0x5413]), ALLOW);
    for tricks in [0x5412, 0x541c, 0x5423, 0xffff_ffff_0000_5412] {
        assert_eq!(ours(libc::SYS_ioctl, &[0, tricks]), refuse(libc::EPERM), "{tricks:#x}");
    }
    assert_eq!(ours(libc::SYS_mknodat, &[0, 0, 0o010_644]), ALLOW, "a pipe");
    assert_eq!(ours(libc::SYS_mknodat, &[0, 0, 0o060_644]), refuse(libc::EPERM), "a block device");
    assert_eq!(ours(libc::SYS_personality, &[0xffff_ffff]), ALLOW);
    assert_eq!(ours(libc::SYS_personality, &[0x0004_0000]), refuse(libc::EPERM));
}

#[test]
fn the_program_is_short() {
    assert!(compile().len() < 600, "{} instructions", compile().len());
}
