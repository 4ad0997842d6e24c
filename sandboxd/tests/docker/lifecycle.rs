//! Ends: at the deadline, by cancellation, with the daemon. No container of a run is left afterwards. And what a program inside
//! cannot do.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_sandboxd::job::{Ending, NoSink};
use freeboard_sandboxd::provider::docker::DockerConfig;

use crate::engine::Engine;
use crate::support::*;

#[test]
fn f20_f24_nothing_survives_the_deadline_or_a_cancellation() {
    with_docker(DockerConfig::default(), async |provider, engine| {
        let script =
            "trap '' TERM INT HUP; setsid sh -c 'sleep 300' & (setsid sleep 300 &) & wait; sleep 300";
        let mut job = shell(script);
        job.timeout = Duration::from_secs(2);
        let (sandbox, _) = measured(&provider, job).await.unwrap();
        assert_eq!(engine.containers(), 1, "positive control: the container is there");
        let began = Instant::now();
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        assert_eq!((outcome.ending, outcome.steps[0].exit_code), (Ending::TimedOut, 124));
        assert_eq!(engine.containers(), 0);

        let (sandbox, _) = measured(&provider, shell("sleep 300")).await.unwrap();
        let cancelled =
            tokio::time::timeout(Duration::from_millis(400), sandbox.release(Arc::new(NoSink))).await;
        assert!(cancelled.is_err());
        wait_until("the cancelled run is gone", || engine.containers() == 0);
    });
}

#[test]
fn f23_f25_a_run_dies_with_its_daemon_whatever_kills_it() {
    let Some(engine) = Engine::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("freeboard.toml");
    let text = format!(
        "[sandboxd]\nproviders = [\"docker\"]\ndocker_image = \"{}\"\ndocker_socket = \"{}\"\n",
        engine.image,
        engine.socket().display()
    );
    std::fs::write(&config, text).unwrap();
    for signal in ["KILL", "TERM"] {
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_sandboxd"))
            .args(["run", "--timeout", "100s", "--config"])
            .arg(&config)
            .args(["--", "sleep", "300"])
            .env_remove("SANDBOX_PROVIDER")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = || {
            let list = engine.api("GET", "/containers/json", None).unwrap();
            list.contains("freeboard.owner") && list.contains("running")
        };
        wait_until("the run has begun", begun);
        Command::new("kill").args([&format!("-{signal}"), &daemon.id().to_string()]).status().unwrap();
        daemon.wait().unwrap();
        wait_until(&format!("no container is left after SIG{signal}"), || engine.containers() == 0);
    }
}

#[test]
fn f02_f03_f04_f05_nothing_of_the_host_and_no_right_is_inside() {
    with_docker(DockerConfig::default(), async |provider, _| {
        let script = "import os, ctypes, socket\n\
            libc = ctypes.CDLL(None, use_errno=True)\n\
            extra = [n for n in os.listdir('/proc/self/fd') if int(n) > 2 and os.path.exists('/proc/self/fd/' + n)]\n\
            if [n for n in extra if not os.readlink('/proc/self/fd/' + n).startswith('/proc')]: print(extra)\n\
            for p in ['/var/run/docker.sock', '/run/containerd', '/dev/kvm', '/dev/mem', '/dev/vda', '/dev/sda']:\n\
            \x20   if os.path.exists(p): print(p)\n\
            for line in open('/proc/self/status'):\n\
            \x20   if line.startswith('Cap') and line.split()[1].strip('0'): print(line)\n\
            def attempt(name, call):\n\
            \x20   try:\n\
            \x20       if call() != -1: print(name)\n\
            \x20   except OSError: pass\n\
            attempt('setuid', lambda: os.setuid(0))\n\
            attempt('chroot', lambda: os.chroot('/tmp'))\n\
            attempt('mount', lambda: libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None))\n\
            attempt('unshare', lambda: libc.unshare(0x10000000))\n\
            attempt('ptrace', lambda: libc.ptrace(16, 1, None, None))\n\
            attempt('hostname', lambda: socket.sethostname('x'))\n\
            for name in ['mem', 'environ', 'fd/0']:\n\
            \x20   attempt(name, lambda: len(open('/proc/1/' + name, 'rb').read(64)))\n\
            for p in ['/usr/x', '/etc/x', '/x', '/run/freeboard-guest', '/usr/bin/env', '/etc/hosts', '/etc/resolv.conf']:\n\
            \x20   attempt(p, lambda: open(p, 'ab').close())\n\
            os.kill(1, 9); os.kill(1, 15)\n\
            print('end')";
        let (code, stdout, stderr) = first(&run(&provider, python(script)).await.unwrap());
        assert_eq!((code, stdout.as_str()), (0, "end\n"), "{stderr}");
    });
}
