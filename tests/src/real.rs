//! Real servers as upstreams: nginx, git behind fcgiwrap, Python programs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::lab::Lab;
use crate::upstream::address_of;
use crate::wait;

/// A server process in the lab's world. Ended when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `command` in the world, with its output in `folder/NAME.log`.
    pub fn start(lab: &Lab, name: &str, command: &mut Command) -> Self {
        let log = lab.folder().join(format!("{name}.log"));
        let output = std::fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let child =
            lab.world().enter(|| command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")));
        Self { child, log }
    }

    /// Waits until the address takes connections.
    pub fn wait_port(mut self, lab: &Lab, host: &str, port: u16) -> Self {
        wait::until(&format!("{host}:{port} takes connections"), || {
            self.assert_alive();
            lab.world().connect((address_of(host), port).into()).ok()
        });
        self
    }

    /// Waits until a file is there.
    pub fn wait_file(mut self, path: &Path) -> Self {
        wait::until_true(&format!("{} is there", path.display()), || {
            self.assert_alive();
            path.exists()
        });
        self
    }

    fn assert_alive(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the server ended ({status}): {}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let gone = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            matches!(self.child.try_wait(), Ok(Some(_)))
        });
        if !gone {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// nginx with one TLS server per `(host, directives)`, HTTP/1.1 and HTTP/2.
pub fn nginx(lab: &Lab, servers: &[(&str, &str)]) -> Server {
    let folder = lab.folder().join("nginx");
    std::fs::create_dir_all(folder.join("temp")).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let mut text = format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log {} info;\nevents {{}}\nhttp {{\n\
         access_log {};\ndefault_type text/plain;\nkeepalive_requests 1000;\nclient_max_body_size 0;\n",
        at("pid"),
        at("error.log"),
        at("access.log"),
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        text.push_str(&format!("{kind}_temp_path {};\n", at(&format!("temp/{kind}"))));
    }
    for (host, directives) in servers {
        let (certificate, key) = lab.upstream.ca().leaf_pem(&[host]);
        let (certificate_path, key_path) = (at(&format!("{host}.pem")), at(&format!("{host}.key")));
        std::fs::write(&certificate_path, certificate).unwrap();
        std::fs::write(&key_path, key).unwrap();
        text.push_str(&format!(
            "server {{\nlisten {}:443 ssl http2;\nserver_name {host};\nssl_certificate {certificate_path};\n\
             ssl_certificate_key {key_path};\n{directives}\n}}\n",
            address_of(host)
        ));
    }
    text.push_str("}\n");
    let config = folder.join("nginx.conf");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-e").arg(at("error.log")).arg("-c").arg(&config).arg("-p").arg(folder.as_path());
    command.env("PATH", search_path());
    let host = servers.first().unwrap().0;
    Server::start(lab, "nginx", &mut command).wait_port(lab, host, 443)
}

/// `git http-backend` as a FastCGI service on a Unix socket. Returns the server and the socket.
pub fn git_backend(lab: &Lab) -> (Server, PathBuf) {
    let socket = lab.folder().join("fcgi.sock");
    let mut command = Command::new("fcgiwrap");
    command.arg("-s").arg(format!("unix:{}", socket.display())).env("PATH", search_path());
    (Server::start(lab, "fcgiwrap", &mut command).wait_file(&socket), socket)
}

/// A Python program as a server, by Debian's interpreter.
pub fn python(lab: &Lab, name: &str, source: &str, arguments: &[&str]) -> Server {
    let path = lab.folder().join(format!("{name}.py"));
    std::fs::write(&path, source).unwrap();
    Server::start(lab, name, Command::new("/usr/bin/python3").arg(&path).args(arguments))
}

/// The usual path with the folders of system programs.
pub fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// A Python virtual environment below the target folder with these packages, made once; `None`, loudly, without a package
/// index.
pub fn venv(name: &str, packages: &[&str]) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let folder = own.ancestors().nth(3).unwrap().join("venvs");
    std::fs::create_dir_all(&folder).unwrap();
    // Tests run as processes of their own; one of them makes it, the others wait.
    let lock = std::fs::File::create(folder.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let path = folder.join(name);
    if path.join("ready").exists() {
        return Some(path);
    }
    let done = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let made = done(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&path))
        && done(
            Command::new(path.join("bin/pip"))
                .args(["install", "-q", "--disable-pip-version-check"])
                .args(packages),
        );
    if !made {
        eprintln!("SKIPPED: no virtual environment with {packages:?} (no network?)");
        return None;
    }
    std::fs::write(path.join("ready"), "").unwrap();
    Some(path)
}
