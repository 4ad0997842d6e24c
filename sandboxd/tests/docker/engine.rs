//! An engine of a test's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running engine. Dropping it ends it and removes everything.
pub(crate) struct Engine {
    folder: tempfile::TempDir,
    daemon: Child,
    pub(crate) image: String,
}

impl Engine {
    /// `None` where none starts; it has said why then.
    pub(crate) fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: an engine needs root");
            return None;
        }
        if !Path::new("/usr/sbin/dockerd").exists() {
            eprintln!("SKIPPED: `dockerd` is not installed (tests/run installs it)");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("fb-docker").tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let config = serde_json::json!({
            "data-root": at("data"), "exec-root": at("exec"), "pidfile": at("pid"),
            "hosts": [format!("unix://{}", at("docker.sock"))],
            "storage-driver": "vfs", "bridge": "none", "iptables": false, "ip6tables": false,
            "ip-forward": false, "ip-masq": false, "userland-proxy": false,
            // gVisor's own check for the host's network misfires on some kernels; these runs have no network.
            "runtimes": { "runsc": { "path": "/usr/bin/runsc", "runtimeArgs": ["--network=none"] } },
        });
        std::fs::write(folder.path().join("daemon.json"), config.to_string()).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let daemon = Command::new("/usr/sbin/dockerd")
            .arg("--config-file")
            .arg(folder.path().join("daemon.json"))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut engine = Self { folder, daemon, image: String::new() };
        let end = Instant::now() + Duration::from_secs(60);
        while !engine.answers() {
            if engine.daemon.try_wait().unwrap().is_some() || Instant::now() > end {
                let log = std::fs::read_to_string(engine.folder.path().join("log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                eprintln!("SKIPPED: the engine does not start here: {last:?}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        engine.image = engine.import(&["ENV LANG=C.UTF-8"]);
        Some(engine)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("docker.sock")
    }

    fn answers(&self) -> bool {
        self.api("GET", "/_ping", None).is_some_and(|answer| answer.ends_with("OK"))
    }

    /// Imports the image once more, with changes. Its identity.
    pub(crate) fn import(&self, changes: &[&str]) -> String {
        let archive = self.folder.path().join("image.tar");
        if !archive.exists() {
            make_archive(&archive);
        }
        let changes: String =
            changes.iter().map(|change| format!("&changes={}", change.replace(' ', "%20"))).collect();
        let path = format!("/images/create?fromSrc=-&repo=test{changes}");
        let answer = self.api("POST", &path, Some(&archive)).unwrap();
        let place = answer.rfind("sha256:").unwrap_or_else(|| panic!("{answer}"));
        answer[place..place + 71].to_owned()
    }

    /// One request, through curl: the provider's own client is what is tested.
    pub(crate) fn api(&self, method: &str, path: &str, body: Option<&Path>) -> Option<String> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-m", "120", "-X", method, "--unix-socket"]).arg(self.socket());
        if let Some(body) = body {
            curl.args(["-H", "Content-Type: application/x-tar", "-T"]).arg(body);
        }
        let output = curl.arg(format!("http://engine{path}")).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Our containers that the engine has, whatever their state.
    pub(crate) fn containers(&self) -> usize {
        let list = self.api("GET", "/containers/json?all=true", None).unwrap();
        serde_json::from_str::<serde_json::Value>(&list).unwrap().as_array().unwrap().len()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.daemon.id().cast_signed()),
            nix::sys::signal::Signal::SIGTERM,
        );
        let _ = self.daemon.wait();
    }
}

fn make_archive(archive: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/docker/image.py");
    let made = Command::new("/usr/bin/python3").arg(script).arg(archive).status().unwrap();
    assert!(made.success());
}
