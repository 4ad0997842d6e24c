//! Signed run records: what the daemon has signed, another process signs and anybody verifies offline, also with a tool that is not
//! ours; what was changed does not verify, and nothing but statements about runs is signed.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use freeboard_sandboxd::attest::{PrivateKey, Serving, Signer, generate};
use freeboard_wire::digest::sha256_hex;
use freeboard_wire::runs::{Envelope, Run, record_digest};
use support::{Daemon, Setup, answered, sandboxd, until};

const VERIFIER: &str = "securesystemslib[crypto]==1.3.1";

struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn with_key() -> Self {
        let folder = tempfile::tempdir().unwrap();
        generate(&folder.path().join("key")).unwrap();
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, value: &impl serde::Serialize) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, serde_json::to_vec(value).unwrap()).unwrap();
        path
    }

    fn attest(&self, arguments: &[&str]) -> Output {
        sandboxd().arg("attest").args(arguments).current_dir(self.folder.path()).output().unwrap()
    }

    fn verifies(&self, file: &Path) -> bool {
        let output = self.attest(&["verify", "--public-key", "key.pub", file.to_str().unwrap()]);
        assert_eq!(output.status.success(), output.stdout.starts_with(b"verified\t"), "{output:?}");
        output.status.success()
    }

    /// The signing process, for this user; ended with the test.
    fn serve(&self) -> Process {
        let mut command = sandboxd();
        command.args(["attest", "serve", "--key", "key", "--socket", "sock"]).current_dir(self.folder.path());
        Process(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn run_once(daemon: &Daemon) -> Run {
    let body = r#"{"program":{"shell":"x"}}"#;
    let reply = daemon.own(&daemon.alice, "Start", "Prefer: wait=20\r\n", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

#[tokio::test]
async fn a_runs_record_is_signed_by_another_process_and_verified_offline() {
    let folder = Folder::with_key();
    let process = folder.serve();
    until("it listens", || UnixStream::connect(folder.at("sock")).is_ok()).await;
    let daemon = Setup::new(answered("42", 0)).start().await;
    daemon.app.runs.sign_with(Signer::new(folder.at("sock")));
    let run = run_once(&daemon).await;
    let envelope = run.attestation.clone().unwrap();
    assert!(folder.verifies(&folder.write("run.json", &run)));
    assert!(folder.verifies(&folder.write("envelope.json", &envelope)));
    let with_run =
        folder.attest(&["verify", "--public-key", "key.pub", "--run", "run.json", "envelope.json"]);
    assert!(with_run.status.success(), "{with_run:?}");
    independent(&folder, &run.record.as_ref().unwrap().record_sha256);

    // The same by hand, with the key and with the process.
    for by in [["--key", "key"], ["--socket", "sock"]] {
        let signed = folder.attest(&[&["sign"], &by[..], &["run.json"]].concat());
        assert_eq!(serde_json::from_slice::<Envelope>(&signed.stdout).unwrap(), envelope, "{signed:?}");
    }
    let bundle = folder.attest(&["bundle", "--public-key", "key.pub", "run.json", "run.json"]);
    std::fs::write(folder.at("bundle.json"), &bundle.stdout).unwrap();
    let verified = folder.attest(&["verify", "--public-key", "key.pub", "bundle.json"]);
    assert_eq!(String::from_utf8(verified.stdout).unwrap().matches("verified\t").count(), 2);

    drop(process);
    let unsigned = run_once(&daemon).await;
    assert!(unsigned.record.is_some() && unsigned.attestation.is_none(), "it is told without a signature");
    assert!(!folder.verifies(&folder.write("unsigned.json", &unsigned)));
}

/// With a tool that is not ours; says loudly where PyPI does not give it.
fn independent(folder: &Folder, record_sha256: &str) {
    let Some(python) = python() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attest/verify.py");
    let verify = |envelope: &str| {
        let mut command = Command::new(&python);
        command.arg("-B").arg(&script).arg(folder.at(envelope)).arg(folder.at("key.pub")).output().unwrap()
    };
    let output = verify("envelope.json");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), record_sha256, "{output:?}");
    let mut changed: Envelope =
        serde_json::from_slice(&std::fs::read(folder.at("envelope.json")).unwrap()).unwrap();
    changed.payload.push(b' ');
    folder.write("changed.json", &changed);
    assert!(!verify("changed.json").status.success());
}

fn python() -> Option<PathBuf> {
    support::venv("venv-attest", VERIFIER, "import securesystemslib.dsse, cryptography")
}

#[tokio::test]
async fn what_was_changed_does_not_verify() {
    let folder = Folder::with_key();
    let key = PrivateKey::read(&folder.at("key")).unwrap();
    let serving = Serving::at(&folder.at("sock"), key, None, &[rustix::process::geteuid().as_raw()]).unwrap();
    let server = tokio::spawn(serving.serve());
    let daemon = Setup::new(answered("42", 0)).start().await;
    daemon.app.runs.sign_with(Signer::new(folder.at("sock")));
    let run = run_once(&daemon).await;
    server.abort();
    assert!(folder.verifies(&folder.write("run.json", &run)));
    let other = Folder::with_key();
    std::fs::copy(folder.at("run.json"), other.at("run.json")).unwrap();
    assert!(!other.verifies(&other.at("run.json")), "another key");
    let changes: [fn(&mut Run); 7] = [
        |run| run.result.as_mut().unwrap().steps[0].stdout = b"43".to_vec(),
        |run| run.result.as_mut().unwrap().evidence[0].value = "0".into(),
        |run| run.run = "0".repeat(32),
        |run| {
            let record = run.record.as_mut().unwrap();
            record.isolation = "vm".into();
            record.record_sha256 = record_digest(record);
        },
        |run| run.attestation.as_mut().unwrap().payload.push(b' '),
        |run| run.attestation.as_mut().unwrap().payload_type.push('x'),
        |run| run.attestation.as_mut().unwrap().signatures[0].sig[0] ^= 1,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut changed = run.clone();
        change(&mut changed);
        assert!(!folder.verifies(&folder.write("changed.json", &changed)), "change {index}");
    }
    let bundle = folder.attest(&["bundle", "--public-key", "key.pub", "run.json", "changed.json"]);
    assert!(!bundle.status.success() && bundle.stdout.is_empty(), "{bundle:?}");
}

/// What the process answers to these bytes; nothing for no answer at all.
fn ask(socket: &Path, payload: &[u8]) -> Option<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let _ = stream.write_all(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    let _ = stream.write_all(payload);
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_but_statements_about_runs_is_signed() {
    let folder = Folder::with_key();
    let own = rustix::process::geteuid().as_raw();
    let serve = |name: &str, user| {
        let key = PrivateKey::read(&folder.at("key")).unwrap();
        tokio::spawn(Serving::at(&folder.at(name), key, None, &[user]).unwrap().serve())
    };
    let _server = serve("sock", own);
    let daemon = Setup::new(answered("42", 0)).start().await;
    daemon.app.runs.sign_with(Signer::new(folder.at("sock")));
    let run = run_once(&daemon).await;
    let good = run.attestation.unwrap().payload;
    let good_text = String::from_utf8(good.clone()).unwrap();
    assert!(!ask(&folder.at("sock"), &good).unwrap().is_empty());
    let record = run.record.unwrap().record_sha256;
    for bad in [
        "hello".to_owned(),
        "{}".to_owned(),
        good_text.replace("urn:freeboard:run:v1", "https://slsa.dev/provenance/v1"),
        good_text.replace("\"container\"", "\"vm\""),
        good_text.replacen(&record, &sha256_hex(b"other"), 1),
        good_text.replace("\"predicate\":", "\"extra\":1,\"predicate\":"),
    ] {
        assert_eq!(ask(&folder.at("sock"), bad.as_bytes()), Some(Vec::new()), "{bad}");
    }
    assert_eq!(ask(&folder.at("sock"), &vec![b' '; 300_000]), None, "a large one is not even read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_users_process_gets_no_signature() {
    let folder = Folder::with_key();
    let key = PrivateKey::read(&folder.at("key")).unwrap();
    let stranger = rustix::process::geteuid().as_raw() + 1;
    let _server = tokio::spawn(Serving::at(&folder.at("sock"), key, None, &[stranger]).unwrap().serve());
    assert_eq!(ask(&folder.at("sock"), b"{}"), None);
    let daemon = Setup::new(answered("", 0)).start().await;
    daemon.app.runs.sign_with(Signer::new(folder.at("sock")));
    assert!(run_once(&daemon).await.attestation.is_none());
}

#[test]
fn a_key_is_made_once_and_not_used_when_others_can_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::with_key();
    assert!(!folder.attest(&["keygen", "key"]).status.success(), "never over another");
    assert!(folder.attest(&["keygen", "second"]).status.success());
    std::fs::set_permissions(folder.at("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = folder.attest(&["serve", "--key", "key", "--socket", "sock"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("chmod 600"), "{refused:?}");
    assert!(!folder.at("sock").exists());
}

/// A TPM in software with a key for quotes: its context in `ak.ctx`, its public half in `ak.pem`; ended with the test.
struct Tpm {
    _emulator: Process,
    tcti: String,
}

impl Tpm {
    async fn start(folder: &Folder, scheme: [&str; 2]) -> Self {
        std::fs::create_dir(folder.at("tpm")).unwrap();
        let port = two_free_ports();
        let emulator = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear", "--tpmstate"])
            .arg(format!("dir={}", folder.at("tpm").display()))
            .args(["--server", &format!("type=tcp,bindaddr=127.0.0.1,port={port}")])
            .args(["--ctrl", &format!("type=tcp,bindaddr=127.0.0.1,port={}", port + 1)])
            .spawn();
        let emulator = Process(emulator.unwrap());
        let tpm = Self { _emulator: emulator, tcti: format!("swtpm:host=127.0.0.1,port={port}") };
        // The emulator takes one connection, and ends with it: it is asked, not looked at.
        until("the emulator answers", || {
            tpm.tool("tpm2_pcrread", &["sha256:0"])
                .current_dir(folder.folder.path())
                .output()
                .unwrap()
                .status
                .success()
        })
        .await;
        let run = |tool: &str, arguments: &[&str]| {
            let output = tpm.tool(tool, arguments).current_dir(folder.folder.path()).output().unwrap();
            assert!(output.status.success(), "{tool}: {output:?}");
        };
        run("tpm2_createek", &["-Q", "-c", "ek.ctx", "-G", scheme[0], "-u", "ek.pub"]);
        let key = [
            "-Q", "-C", "ek.ctx", "-c", "ak.ctx", "-G", scheme[0], "-g", "sha256", "-s", scheme[1], "-f",
            "pem",
        ];
        run("tpm2_createak", &[&key[..], &["-u", "ak.pem"]].concat());
        run("tpm2_flushcontext", &["-t"]);
        tpm
    }

    fn tool(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(tool);
        command.args(arguments).env("TPM2TOOLS_TCTI", &self.tcti);
        command
    }
}

/// The emulator has two, side by side.
fn two_free_ports() -> u16 {
    loop {
        let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && std::net::TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

#[tokio::test]
async fn a_tpm_quotes_its_registers_beside_the_signature() {
    for scheme in [["ecc", "ecdsa"], ["rsa", "rsassa"]] {
        let folder = Folder::with_key();
        let tpm = Tpm::start(&folder, scheme).await;
        let extend = format!("7:sha256={}", "42".repeat(32));
        assert!(tpm.tool("tpm2_pcrextend", &[&extend]).status().unwrap().success());
        let mut command = sandboxd();
        command.args(["attest", "serve", "--key", "key", "--socket", "sock", "--tpm-key", "ak.ctx"]);
        command.current_dir(folder.folder.path()).env("TPM2TOOLS_TCTI", &tpm.tcti);
        let process = Process(command.stderr(Stdio::null()).spawn().unwrap());
        until("it listens", || UnixStream::connect(folder.at("sock")).is_ok()).await;
        let daemon = Setup::new(answered("42", 0)).start().await;
        daemon.app.runs.sign_with(Signer::new(folder.at("sock")));
        let run = run_once(&daemon).await;
        let envelope = run.attestation.clone().unwrap();
        let quote = envelope.quote.clone().unwrap();
        assert_eq!(quote.registers.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(folder.verifies(&folder.write("run.json", &run)));
        // What one extension makes of zeros.
        let seven = format!("7={}", sha256_hex(&[[0; 32], [0x42; 32]].concat()));
        let quoted = [
            "verify",
            "--public-key",
            "key.pub",
            "--tpm-key",
            "ak.pem",
            "--tpm-register",
            &seven,
            "run.json",
        ];
        let verified = folder.attest(&quoted);
        assert!(verified.status.success() && verified.stdout.starts_with(b"verified\t"), "{verified:?}");
        by_the_tools(&folder, &envelope);

        let wrong = folder.attest(
            &quoted
                .map(|word| if word == seven { "7=00".to_owned() + &"0".repeat(62) } else { word.to_owned() })
                .each_ref()
                .map(String::as_str),
        );
        let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
        assert!(wrong.status.code() == Some(1) && said.contains("register 7 is "), "{said}");

        drop((process, tpm));
        assert!(run_once(&daemon).await.attestation.is_none(), "not signed without the quote");
    }
}

/// The tools of the TPM's own software stack say the same of the quote.
fn by_the_tools(folder: &Folder, envelope: &Envelope) {
    let quote = envelope.quote.as_ref().unwrap();
    std::fs::write(folder.at("attested"), &quote.attested).unwrap();
    std::fs::write(folder.at("sig"), &quote.sig).unwrap();
    let kind = &envelope.payload_type;
    let mut message = format!("DSSEv1 {} {kind} {} ", kind.len(), envelope.payload.len()).into_bytes();
    message.extend_from_slice(&envelope.payload);
    let mut command = Command::new("tpm2_checkquote");
    command.args([
        "-Q",
        "-u",
        "ak.pem",
        "-m",
        "attested",
        "-s",
        "sig",
        "-g",
        "sha256",
        "-q",
        &sha256_hex(&message),
    ]);
    let output = command.current_dir(folder.folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn a_quote_that_was_changed_does_not_verify() {
    let folder = Folder::with_key();
    let tpm = Tpm::start(&folder, ["ecc", "ecdsa"]).await;
    let mut command = sandboxd();
    command.args(["attest", "serve", "--key", "key", "--socket", "sock", "--tpm-key", "ak.ctx"]);
    command
        .args(["--tpm-registers", "16,1"])
        .current_dir(folder.folder.path())
        .env("TPM2TOOLS_TCTI", &tpm.tcti);
    let _process = Process(command.stderr(Stdio::null()).spawn().unwrap());
    until("it listens", || UnixStream::connect(folder.at("sock")).is_ok()).await;
    let daemon = Setup::new(answered("42", 0)).start().await;
    daemon.app.runs.sign_with(Signer::new(folder.at("sock")));
    let (run, other) = (run_once(&daemon).await, run_once(&daemon).await);
    let judge = |name: &str, run: &Run| {
        let file = folder.write(name, run);
        let file = file.to_str().unwrap();
        folder.attest(&["verify", "--public-key", "key.pub", "--tpm-key", "ak.pem", file]).status.success()
    };
    assert!(judge("run.json", &run) && judge("other.json", &other));
    type Change = fn(&mut freeboard_wire::runs::Quote);
    let changes: [Change; 6] = [
        |quote| drop(quote.registers.insert(1, "11".repeat(32))),
        |quote| drop(quote.registers.remove(&1)),
        |quote| drop(quote.registers.insert(2, "00".repeat(32))),
        |quote| quote.attested.push(0),
        |quote| quote.attested.truncate(40),
        |quote| quote.sig.reverse(),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut changed = run.clone();
        change(changed.attestation.as_mut().unwrap().quote.as_mut().unwrap());
        assert!(!judge("changed.json", &changed), "change {index}");
        assert!(folder.verifies(&folder.at("changed.json")), "the signature does not depend on it");
    }
    let mut moved = run.clone();
    moved.attestation.as_mut().unwrap().quote = other.attestation.unwrap().quote;
    assert!(!judge("moved.json", &moved), "another run's quote");
    let mut bare = run;
    bare.attestation.as_mut().unwrap().quote = None;
    assert!(!judge("bare.json", &bare), "none");
}

#[test]
fn a_tpm_that_does_not_answer_is_said_at_the_start() {
    let folder = Folder::with_key();
    let mut command = sandboxd();
    command.args(["attest", "serve", "--key", "key", "--socket", "sock", "--tpm-key", "ak.ctx"]);
    let output =
        command.current_dir(folder.folder.path()).env("TPM2TOOLS_TCTI", "swtpm:port=1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the TPM gives no quote"), "{said}");
    assert!(!folder.at("sock").exists());
    for wrong in ["24", "x"] {
        let output = folder.attest(&[
            "serve",
            "--key",
            "key",
            "--socket",
            "s",
            "--tpm-key",
            "k",
            "--tpm-registers",
            wrong,
        ]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
