//! What a program inside cannot do (ATTACKS F), each attempt with its positive control where one is possible.

use crate::support::*;

/// Runs Python that prints a line for each thing that worked and must not.
fn nothing_works(script: &str) {
    with_provider(Allowance::default(), async |provider| {
        let outcome = run(provider, python(&format!("{script}\nprint('end')"))).await.unwrap();
        let (code, stdout, stderr) = first(&outcome);
        assert_eq!((code, stdout.as_str()), (0, "end\n"), "{stderr}");
    });
}

#[test]
fn f02_f03_no_descriptor_and_no_device_of_the_host() {
    nothing_works(
        "import os\n\
         extra = [n for n in os.listdir('/proc/self/fd') if int(n) > 2 and os.path.exists('/proc/self/fd/' + n)]\n\
         if [n for n in extra if not os.readlink('/proc/self/fd/' + n).startswith('/proc')]: print(extra)\n\
         for p in ['/var/run/docker.sock', '/run/containerd', '/dev/kvm', '/dev/mem', '/dev/vda', '/dev/sda', '/proc/kcore']:\n\
         \x20   if os.path.exists(p) and p != '/proc/kcore': print(p)",
    );
}

#[test]
fn f04_rights_do_not_come_back() {
    nothing_works(
        "import os, ctypes\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         for line in open('/proc/self/status'):\n\
         \x20   if line.startswith('Cap') and line.split()[1].strip('0'): print(line)\n\
         def attempt(name, call):\n\
         \x20   try:\n\
         \x20       if call() not in (-1, None) : print(name)\n\
         \x20       elif name.startswith('os.'): print(name)\n\
         \x20   except OSError: pass\n\
         attempt('os.setuid', lambda: os.setuid(0))\n\
         attempt('os.setresuid', lambda: os.setresuid(0, 0, 0))\n\
         attempt('os.chroot', lambda: os.chroot('/tmp'))\n\
         attempt('device', lambda: (os.mknod('/work/m', 0o600 | 0o060000, os.makedev(8, 0)), os.open('/work/m', 0))[1])\n\
         attempt('mount', lambda: libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None))\n\
         attempt('os.sethostname', lambda: __import__('socket').sethostname('x'))",
    );
}

#[test]
fn f04_a_set_user_id_program_gives_nothing() {
    with_provider(Allowance::default(), async |provider| {
        let script = "for p in /usr/bin/su /usr/bin/passwd /usr/bin/mount; do [ -u $p ] && echo set-user-id; done; \
                      python3 -c \"import os; print(os.getresuid())\"";
        let (_, stdout, _) = first(&run(provider, shell(script)).await.unwrap());
        assert!(stdout.ends_with("(1000, 1000, 1000)\n"), "{stdout}");
    });
}

#[test]
fn f05_the_first_process_can_neither_be_read_nor_traced_nor_killed() {
    with_provider(Allowance::default(), async |provider| {
        let script = "import os, ctypes\n\
            libc = ctypes.CDLL(None, use_errno=True)\n\
            for name in ['mem', 'fd/3']:\n\
            \x20   try:\n\
            \x20       with open('/proc/1/' + name, 'rb') as f: print(name, f.read(64))\n\
            \x20   except OSError: pass\n\
            if libc.ptrace(16, 1, None, None) == 0: print('attached')\n\
            for signal in [9, 15, 19]:\n\
            \x20   try: os.kill(1, signal); print('signal', signal)\n\
            \x20   except OSError: pass\n\
            print('end')";
        let outcome = run(provider, python(script)).await.unwrap();
        let (_, stdout, stderr) = first(&outcome);
        assert_eq!(stdout, "end\n", "{stderr}");
    });
}

#[test]
fn f13_f44_nothing_of_the_host_is_seen() {
    with_provider(Allowance::default(), async |provider| {
        let script = "import os\n\
            print(os.listdir('/root'), os.listdir('/home'), os.path.exists('/opt'), os.path.exists('/srv'))\n\
            print(open('/etc/hostname').read().strip(), os.uname().nodename)\n\
            print(sorted(p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid()) and open('/proc/%s/cmdline' % p).read()))";
        let (_, stdout, stderr) = first(&run(provider, python(script)).await.unwrap());
        assert_eq!(stdout, "[] [] False False\nsandbox sandbox\n[]\n", "{stderr}");
        let host = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root_source = host.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
        let device = root_source.rsplit(' ').nth(1).unwrap();
        let (_, stdout, _) =
            first(&run(provider, shell("cat /proc/mounts /proc/self/mountinfo")).await.unwrap());
        assert!(stdout.contains("/work") && !stdout.contains(device), "{device} in {stdout}");
    });
}

#[test]
fn the_hosts_tools_cannot_be_written() {
    nothing_works(
        "import os\n\
         for p in ['/usr/x', '/etc/x', '/x', '/run/freeboard-guest', '/usr/bin/env', '/etc/passwd']:\n\
         \x20   try:\n\
         \x20       open(p, 'ab').close(); print(p)\n\
         \x20   except OSError: pass\n\
         open('/work/x', 'w').write('1'); open('/tmp/x', 'w').write('1'); open('/dev/shm/x', 'w').write('1')",
    );
}
