//! Runs a test inside a fresh network namespace, once as root and once as an ordinary user through a user namespace.

use std::process::Command;

/// Set in the process that runs the test's body.
const INSIDE: &str = "FREEBOARD_NETNS_INSIDE";

/// Calls `body` in a fresh namespace, as root and as uid 65534. A way that this host does not allow is skipped loudly;
/// at least one must be allowed.
pub(crate) fn in_fresh_namespace(test: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let as_root: &[&str] = &["unshare", "--net", "--mount", "--propagation=private"];
    let as_nobody: &[&str] = &[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
    ];
    let as_me: &[&str] = &["unshare", "--user", "--map-root-user", "--net", "--mount"];
    let ways = if nix::unistd::geteuid().is_root() { vec![as_root, as_nobody] } else { vec![as_me] };
    let mut ran = 0;
    for way in ways {
        let (program, arguments) = way.split_first().unwrap();
        let allowed =
            Command::new(program).args(arguments).arg("true").output().is_ok_and(|out| out.status.success());
        if !allowed {
            eprintln!("SKIPPED {test} as `{}`: this host does not allow it", way.join(" "));
            continue;
        }
        let output = Command::new(program)
            .args(arguments)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let text =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success() && text.contains("1 passed"), "as `{}`:\n{text}", way.join(" "));
        ran += 1;
    }
    assert!(ran > 0, "no way to make a namespace on this host");
}
