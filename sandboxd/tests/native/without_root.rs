//! The same tests as an ordinary user, where they were started as root.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// User `nobody`.
const NOBODY: &str = "65534";

#[test]
fn everything_holds_without_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // The programs are copied to where that user can read them; build folders often are not.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let copy = |from: &std::path::Path, name: &str| {
        let place = folder.path().join(name);
        std::fs::copy(from, &place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
        place
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let sandboxd = copy(env!("CARGO_BIN_EXE_sandboxd").as_ref(), "sandboxd");
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(&tests)
        .args(["--skip", "without_root", "--test-threads", "1"])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("TMPDIR", folder.path())
        .env("FREEBOARD_SANDBOXD", &sandboxd)
        .env_remove("XDG_CONFIG_HOME")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test calls::"), "the tests ran: {text}");
}
