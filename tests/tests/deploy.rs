//! The Debian package in a fresh Debian under systemd: installed, started by its units, used, upgraded, removed, purged.
//! And the units by themselves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use freeboard_tests::broker::program;

/// What the fresh system has besides Debian's minimal base: the service manager and the package's dependencies.
const PACKAGES: &str = "adduser,systemd,systemd-sysv,dbus,nftables";
const POLICY: &str = r#"
[api.one]
origins = ["https://api.test"]

[grant.g]
callers = ["lab"]
[[grant.g.allow]]
api = "one"
routes = ["GET /v1/items/*"]
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn must(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A minimal Debian, fetched once and kept in the target directory.
fn fresh_debian() -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("debian-{}", PACKAGES.replace(',', "-")));
    if !kept.exists() {
        let half = kept.with_extension("half");
        if half.exists() {
            fs::remove_dir_all(&half).unwrap();
        }
        must(
            Command::new("debootstrap")
                .args(["--variant=minbase", "--include", PACKAGES, "bookworm"])
                .arg(&half),
        );
        fs::rename(&half, &kept).unwrap();
    }
    kept
}

/// The package of the programs that the tests run.
fn package(folder: &Path) -> PathBuf {
    let package = folder.join("freeboard.deb");
    let target = program("freeboard").parent().unwrap().parent().unwrap().to_owned();
    must(
        Command::new("cargo-deb")
            .current_dir(repository())
            .env("CARGO_TARGET_DIR", target)
            .args(["--no-build", "--package", "freeboard-sandboxd", "--profile", "dev", "--fast", "--output"])
            .arg(&package),
    );
    package
}

fn inside(root: &Path, words: &[&str]) -> String {
    let output = must(
        Command::new("chroot")
            .arg(root)
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C"),
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_package_is_installed_started_used_upgraded_and_removed() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: only root makes a Debian root and boots it");
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    must(Command::new("cp").arg("-a").arg(fresh_debian()).arg(&root));
    fs::copy(package(folder.path()), root.join("root/freeboard.deb")).unwrap();
    inside(&root, &["dpkg", "-i", "/root/freeboard.deb"]);
    assert!(inside(&root, &["sandboxd", "--version"]).starts_with("sandboxd "));

    fs::write(root.join("etc/freeboard/policy/lab.toml"), POLICY).unwrap();
    inside(&root, &["freeboard", "policy", "check", "/etc/freeboard/policy"]);
    inside(&root, &["freeboard", "ca", "init"]);
    assert_eq!(inside(&root, &["sandboxd", "callers", "create", "lab"]).trim().len(), 64);
    let units = ["freeboard.socket", "freeboard.service", "sandboxd.service"];
    must(Command::new("systemctl").arg("--root").arg(&root).arg("enable").args(units));
    add_check(&root);
    boot(&root);

    let read = |name: &str| fs::read_to_string(root.join("root").join(name)).unwrap_or_default();
    let results = read("result");
    let found: BTreeMap<&str, &str> = results.lines().filter_map(|line| line.split_once('=')).collect();
    let told =
        |name: &str| format!("{name}: {results}\n{}\n{}", read(&format!("step-{name}")), read("journal"));
    for step in [
        "up",
        "status",
        "run",
        "freeboard-doctor",
        "sandboxd-doctor",
        "reload",
        "restart",
        "run-after-restart",
        "comes-back",
        "run-after-kill",
        "demo",
        "upgrade",
        "up-after-upgrade",
        "run-after-upgrade",
        "verify-log",
        "remove",
        "purge",
    ] {
        assert_eq!(found.get(step), Some(&"0"), "{}", told(step));
    }
    for fact in ["same-after-reload", "new-after-restart", "gone", "log-stays", "key-gone", "done"] {
        assert_eq!(found.get(fact), Some(&"yes"), "{}", told(fact));
    }
    assert_ne!(
        found.get("readable-key"),
        Some(&"0"),
        "the broker's user reads the key only as the unit hands it over"
    );
    assert!(read("step-run").contains("hello from inside"), "{}", told("run"));
    assert!(read("step-run").contains("at tier container by native"), "{}", told("run"));
    assert!(!read("step-demo").contains("[FAILED]"), "{}", told("demo"));
    let status = read("broker-status");
    for line in ["CapBnd:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "`{line}` is not in {status}");
    }
    assert!(!status.contains("Uid:\t0"), "{status}");
}

/// A unit that does the checks once everything is up.
fn add_check(root: &Path) {
    fs::copy(repository().join("tests/src/programs/deployed.sh"), root.join("root/check.sh")).unwrap();
    let unit = "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/bin/sh /root/check.sh\n";
    fs::write(root.join("etc/systemd/system/check.service"), unit).unwrap();
    let wanted = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wanted).unwrap();
    std::os::unix::fs::symlink("/etc/systemd/system/check.service", wanted.join("check.service")).unwrap();
}

/// Boots the system as a container without network, until it switches itself off.
fn boot(root: &Path) {
    let output = Command::new("timeout")
        .args(["--kill-after", "10", "150", "systemd-nspawn", "--quiet", "--boot", "--private-network"])
        .args(["--register=no", "--keep-unit", "--directory"])
        .arg(root)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(root.join("root/result").exists(), "the checks did not run:\n{said}");
}

#[test]
fn the_units_are_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let units = folder.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
    for name in ["freeboard", "sandboxd", "sh"] {
        fs::copy("/bin/true", folder.path().join("usr/bin").join(name)).unwrap();
    }
    std::os::unix::fs::symlink("usr/bin", folder.path().join("bin")).unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(repository().join("deploy/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".service") || name.ends_with(".socket") {
            fs::copy(&path, units.join(&name)).unwrap();
            names.push(name);
        }
    }
    assert_eq!(names.len(), 3);
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no", "--root"])
        .arg(folder.path())
        .args(&names)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // The root holds our units only: what they wait for is not in it.
    let own: Vec<&str> =
        said.lines().filter(|line| line.contains("freeboard") || line.contains("sandboxd")).collect();
    let unknown: Vec<_> =
        own.iter().filter(|line| line.contains("Unknown") || line.contains("Failed to parse")).collect();
    assert!(output.status.success() && unknown.is_empty(), "{said}");
}
