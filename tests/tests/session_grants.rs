//! Calls of a session that use grants: the public client against the real sandboxd and the real broker.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use freeboard_tests::broker::program;
use freeboard_tests::lab::{CALLER, Lab, POLICY};
use freeboard_tests::real::venv;
use freeboard_tests::wait;

/// Killed when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `sandboxd serve` with the lab's broker, and its address.
fn serve(lab: &Lab) -> (Daemon, String) {
    let (ready, log) = (lab.folder().join("ready"), lab.folder().join("sandboxd.log"));
    let mut command = Command::new(program("sandboxd"));
    command.args(["serve", "--ready-fd", "1", "--config"]).arg(lab.broker.config_file());
    command.env_remove("SANDBOX_PROVIDER").env_remove("SANDBOX_MIN_ISOLATION").stdin(Stdio::null());
    command.stdout(std::fs::File::create(&ready).unwrap()).stderr(std::fs::File::create(&log).unwrap());
    let mut daemon = Daemon(command.spawn().unwrap());
    let address = wait::until("sandboxd serves", || {
        let log = || std::fs::read_to_string(&log).unwrap();
        assert!(daemon.0.try_wait().unwrap().is_none(), "sandboxd did not start: {}", log());
        let line = std::fs::read_to_string(&ready).unwrap();
        Some(line.strip_prefix("ready ")?.strip_suffix('\n')?.to_owned())
    });
    (daemon, address)
}

fn token(lab: &Lab) -> String {
    let mut command = Command::new(program("sandboxd"));
    command.args(["callers", "--file"]).arg(lab.folder().join("callers.toml")).args(["create", CALLER]);
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

#[test]
fn f_calls_of_a_session_use_grants_that_are_for_sessions() {
    let policy = POLICY.replacen("[grant.items]\n", "[grant.items]\nsessions = true\n", 1)
        + "\n[grant.few]\ncallers = [\"lab\"]\nsessions = true\nbudget = { calls = 2 }\n[[grant.few.allow]]\napi = \"api\"\nroutes = [\"GET /v1/items/*\"]\n";
    assert_ne!(policy, POLICY);
    let more = "listen = \"127.0.0.1:0\"\nmax_sessions = 4\nrate_per_minute = 0\nnative_pool = 2\n";
    let Some(lab) = Lab::start_configured(&policy, &[], more) else { return };
    let Some(venv) = venv("plimsoll-client", &["plimsoll-client==0.23.0"]) else { return };
    let token = token(&lab);
    let (_daemon, address) = serve(&lab);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public_client/session_grants.py");
    let mut command = Command::new(venv.join("bin/python"));
    command.arg(script).env("PLIMSOLL_URL", format!("http://{address}")).env("PLIMSOLL_TOKEN", &token);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let (session, said) = said.strip_prefix("session ").unwrap().split_once('\n').unwrap();
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "with the grant: 200",
            "the call after it: 000",
            "not for sessions: permission_denied permission",
            "a run of its own: 200",
            "beside a cell's thread: 200",
            "what the thread reached: nothing",
            "JavaScript: 200",
            "few: 200 200 429",
            "few in another session: 200",
        ]
    );
    lab.assert_no_secret("what calls of a session printed", said.as_bytes());
    // The log tells which calls were one session's.
    let requests = lab.audit.records().into_iter().filter(|record| record["kind"] == "request");
    let (of_session, others): (Vec<_>, Vec<_>) =
        requests.partition(|record| record["session"].as_str() == Some(session));
    assert_eq!(of_session.len(), 6, "{of_session:#?}");
    assert!(others.iter().any(|record| record["session"].is_null()), "a run of its own is in none");
    assert!(others.iter().any(|record| record["session"].is_string()), "the other session has its own name");
    let refused = lab.audit.records().into_iter().find(|record| record["kind"] == "run_refused").unwrap();
    assert_eq!((&refused["session"], &refused["reason"]), (&session.into(), &"grant_not_available".into()));
}
