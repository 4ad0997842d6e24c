//! Under a service manager: what it is told, and sockets that it holds while the broker is away.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use freeboard_control::Client;

use crate::broker::{Lab, PATIENCE, prepare, wait_until};

/// Holds the control socket and starts the broker with it as systemd does; again whenever it ends, until its input ends.
const MANAGER: &str = r#"
import os, socket, subprocess, sys, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listener.listen(16)
os.dup2(listener.fileno(), 3, inheritable=True)
over, child = False, None
def watch():
    global over
    sys.stdin.read()
    over = True
    child.terminate()
threading.Thread(target=watch, daemon=True).start()
while not over:
    words = ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', "sh", *sys.argv[2:]]
    child = subprocess.Popen(words, pass_fds=[3], stdin=subprocess.DEVNULL)
    print("started", child.pid, flush=True)
    child.wait()
"#;

fn messages(socket: &UnixDatagram, last: &str) -> String {
    let mut all = String::new();
    let mut buffer = [0; 4096];
    while !all.contains(last) {
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{last} after {all:?}: {error}"));
        all.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        all.push('\n');
    }
    all
}

#[test]
fn the_service_manager_hears_of_readiness_of_life_and_of_the_end() {
    let lab = Lab::new();
    let path = lab.at("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = lab.command(&["serve"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000");
    let broker = lab.start_with(command);
    let begun = messages(&socket, "READY=1");
    assert!(begun.contains("STATUS=serving"), "{begun}");
    assert!(!begun.contains("STOPPING"), "{begun}");
    messages(&socket, "WATCHDOG=1");
    messages(&socket, "WATCHDOG=1");
    assert!(broker.stop().success());
    messages(&socket, "STOPPING=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_a_held_socket_refuses_no_connection() {
    let lab = Lab::new();
    let folder = lab.at("run");
    std::fs::create_dir(&folder).unwrap();
    let socket = folder.join("control.sock");
    let output = std::fs::File::create(lab.at("manager")).unwrap();
    let serve = lab.command(&["serve"]);
    let mut manager = Command::new("python3")
        .args(["-c", MANAGER])
        .arg(&socket)
        .arg(serve.get_program())
        .args(serve.get_args())
        .stdin(std::process::Stdio::piped())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(lab.at("manager")).unwrap();
    let pid = |turn: usize| {
        let said = said();
        let word = said.lines().filter_map(|line| line.strip_prefix("started ")).nth(turn)?;
        rustix::process::Pid::from_raw(word.parse().ok()?)
    };
    wait_until("the socket is there", || socket.exists().then_some(()));
    let first = wait_until("a broker was started", || pid(0));
    // Waits in the queue of the socket until the broker accepts it.
    let client = Client::connect(&socket).await.unwrap();
    assert_eq!(client.prepare(prepare("bot", &["g"])).await.unwrap().ports, [443]);

    rustix::process::kill_process(first, rustix::process::Signal::TERM).unwrap();
    wait_until("the first one stops", || said().contains("stopping").then_some(()));
    // Whether the old one still drains or nobody runs: the socket takes the connection, and the next broker answers it.
    let answered = wait_until("the next broker answers", || {
        let socket = socket.clone();
        let ask = async move {
            let client = Client::connect(&socket).await.expect("a held socket refuses nobody");
            client.prepare(prepare("bot", &["g"])).await.ok()
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(ask))
    });
    assert_eq!(answered.ports, [443]);
    assert!(wait_until("a second broker was started", || pid(1)) != first);
    assert!(socket.exists(), "a socket that was handed over is not removed");
    drop(manager.stdin.take());
    wait_until("the manager ends", || manager.try_wait().unwrap());
}

#[test]
fn a_socket_of_the_wrong_kind_ends_with_7() {
    let lab = Lab::new();
    let words = lab.command(&["serve"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3</dev/null"#, "sh"])
        .arg(words.get_program())
        .args(words.get_args());
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(7), "{said}");
    assert!(said.contains("number 0 cannot be used"), "{said}");
}
