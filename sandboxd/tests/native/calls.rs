//! System calls and capabilities that a run must not have: each tried from inside, next to one that works.

use crate::support::*;

/// Calls by number through libc's `syscall`; prints the name of each that is not refused. `geteuid` is the control.
fn tried(calls: &str) -> String {
    let script = format!(
        "import ctypes, os\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def call(*a):\n\
         \x20   r = libc.syscall(*[ctypes.c_long(x) for x in a])\n\
         \x20   return r, ctypes.get_errno()\n\
         assert call({control})[0] == os.geteuid()\n\
         for name, errnos, args in {calls}:\n\
         \x20   r, e = call(*args)\n\
         \x20   if not (r == -1 and e in errnos): print(name, r, e)\n",
        control = nix::libc::SYS_geteuid
    );
    let (code, stdout, stderr) = once(python(&script));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

#[test]
fn f05_neighbours_kernel_interfaces_and_namespaces_are_out_of_reach() {
    use nix::libc;
    let refused = [
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("bpf", libc::SYS_bpf),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("fsopen", libc::SYS_fsopen),
        ("fsmount", libc::SYS_fsmount),
        ("open_tree", libc::SYS_open_tree),
        ("move_mount", libc::SYS_move_mount),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("pivot_root", libc::SYS_pivot_root),
        ("chroot", libc::SYS_chroot),
        ("setns", libc::SYS_setns),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("kexec_load", libc::SYS_kexec_load),
        ("init_module", libc::SYS_init_module),
        ("syslog", libc::SYS_syslog),
        ("fanotify_init", libc::SYS_fanotify_init),
        ("sethostname", libc::SYS_sethostname),
    ];
    let mut calls: Vec<String> =
        refused.iter().map(|(name, number)| format!("('{name}', [1], [{number},0,0,0,0,0,0])")).collect();
    for (name, flag) in freeboard_sandboxd::isolate::namespaces::KINDS {
        calls.push(format!("('unshare {name}', [1], [{},{flag}])", libc::SYS_unshare));
        calls.push(format!("('clone {name}', [1], [{},{},0,0,0,0])", libc::SYS_clone, flag | 0x11));
    }
    calls.push(format!("('clone3', [38], [{},0,0])", libc::SYS_clone3));
    // The x32 numbers of x86-64: not there.
    if cfg!(target_arch = "x86_64") {
        calls.push(format!("('x32 ptrace', [38], [{},0,0,0,0])", 0x4000_0000 + 521));
    }
    assert_eq!(tried(&format!("[{}]", calls.join(","))), "");
}

#[test]
fn f05_a_32_bit_call_ends_the_process() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    // mov eax, 20 (getpid); int 0x80; ret
    let script = "import ctypes, mmap\n\
                  m = mmap.mmap(-1, 4096, prot=7)\n\
                  m.write(bytes([0xb8,20,0,0,0,0xcd,0x80,0xc3]))\n\
                  f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n\
                  print('before', flush=True)\n\
                  print(f())\n";
    let (code, stdout, _) = once(python(script));
    assert_eq!((code, stdout.as_str()), (128 + 31, "before\n"), "SIGSYS");
}

#[test]
fn f04_no_capability_comes_back() {
    for guest_root in [false, true] {
        let config = freeboard_sandboxd::provider::native::NativeConfig {
            guest_root,
            ..freeboard_sandboxd::provider::native::NativeConfig::default()
        };
        with_provider(config, async |provider| {
            let script = "id -u; grep ^Cap /proc/self/status; grep NoNewPrivs /proc/self/status; \
                          mount -t tmpfs none /tmp; mknod /tmp/d b 8 0; chroot / true; unshare -Ur true; \
                          su -c true; hostname x; echo end";
            let (code, stdout, stderr) = first(&run(&provider, shell(script)).await.unwrap());
            assert_eq!(code, 0, "{stderr}");
            let lines: Vec<&str> = stdout.lines().collect();
            assert_eq!(lines[0], if guest_root { "0" } else { "1000" });
            for line in &lines[1..6] {
                assert!(line.ends_with("\t0000000000000000"), "{line}");
            }
            assert_eq!(&lines[6..], ["NoNewPrivs:\t1", "end"], "{stdout} {stderr}");
            // Every one of them complained. `su` may be missing; then it is not there to help either.
            assert!(stderr.lines().count() >= 6, "{stderr}");
        });
    }
}

#[test]
fn d27_d34_sockets_that_lead_elsewhere_cannot_be_made() {
    let script = "import socket\n\
                  socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()\n\
                  socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()\n\
                  a, b = socket.socketpair(); a.close(); b.close()\n\
                  tries = {'packet': (17, 3, 0), 'netlink': (16, 3, 0), 'vsock': (40, 1, 0), 'alg': (38, 5, 0),\n\
                  'bluetooth': (31, 3, 0), 'raw icmp': (2, 3, 1), 'raw v6': (10, 3, 58), 'ping': (2, 2, 1),\n\
                  'sctp': (2, 1, 132), 'tipc': (30, 1, 0), 'xdp': (44, 3, 0), 'can': (29, 3, 1)}\n\
                  for name, t in tries.items():\n\
                  \x20   try:\n\
                  \x20       socket.socket(*t); print(name)\n\
                  \x20   except OSError as e:\n\
                  \x20       if e.errno not in (1, 93): print(name, e)\n";
    let (code, stdout, stderr) = once(python(script));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "", ""));
}

#[test]
fn d31_rules_and_links_cannot_be_changed() {
    let script = "for c in 'ip link add x type dummy' 'ip route add default dev lo' 'nft flush ruleset' \
                  'iptables -t nat -F'; do command -v ${c%% *} >/dev/null && $c 2>/dev/null && echo \"$c worked\"; done; \
                  cat /proc/net/dev | grep -c :";
    let (_, stdout, _) = once(shell(script));
    assert_eq!(stdout, "1\n", "only lo, and nothing worked");
}

#[test]
fn d34_abstract_sockets_of_the_host_are_not_there() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = format!("freeboard-test-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let script = format!("import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0{name}')\n");
    let (code, _, stderr) = once(python(&script));
    assert_eq!(code, 1);
    assert!(stderr.contains("refused") || stderr.contains("not permitted"), "{stderr}");
    assert!(listener.accept().is_err(), "nobody came");
    // Positive control: from the host the same name is reached.
    std::os::unix::net::UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    assert!(listener.accept().is_ok());
}

#[test]
fn ordinary_things_work_under_the_filter() {
    let script = "import os, subprocess, threading, multiprocessing, tempfile, socket, select, time, sqlite3\n\
                  t = threading.Thread(target=lambda: None); t.start(); t.join()\n\
                  assert subprocess.run(['sh', '-c', 'exit 3']).returncode == 3\n\
                  os.mkfifo('/work/pipe')\n\
                  with tempfile.NamedTemporaryFile() as f: f.write(b'x'); f.flush(); os.fsync(f.fileno())\n\
                  db = sqlite3.connect('/work/db'); db.execute('create table t(a)'); db.commit()\n\
                  with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]\n\
                  s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
                  c = socket.create_connection(s.getsockname()); c.sendall(b'hi'); assert s.accept()[0].recv(2) == b'hi'\n\
                  master, slave = os.openpty(); os.write(slave, b'tty'); assert os.read(master, 3) == b'tty'\n\
                  os.sync(); assert os.sysconf('SC_NPROCESSORS_ONLN') >= 1\n\
                  print('fine')\n";
    let (code, stdout, stderr) = once(python(script));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "fine\n", ""));
}
