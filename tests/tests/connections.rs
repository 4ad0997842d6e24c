//! Connections that are passed on unread: TCP by grant, TLS of pinned clients. P1, P2, P6; ATTACKS C30, D21, G18.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freeboard_tests::broker::program;
use freeboard_tests::expect::{allowed, get};
use freeboard_tests::lab::{CALLER, Lab, POLICY, Run, WAYS, Way};
use freeboard_tests::real;
use freeboard_tests::upstream::address_of;
use freeboard_tests::wait;
use freeboard_tests::wire::Wire;
use serde_json::Value;

/// The lab's policy with a database beside `evil.test`, and `aws.test` for a client that pins.
fn policy(database: &str, budget: &str) -> String {
    let aws = POLICY.find("[api.query]").unwrap()..POLICY.find("[grant.items]").unwrap();
    let query = POLICY.find("[grant.query]").unwrap();
    let credential = POLICY.find("[credential.c5]").unwrap()..POLICY.find("[api.api]").unwrap();
    let rest =
        [&POLICY[..credential.start], &POLICY[credential.end..aws.start], &POLICY[aws.end..query]].concat();
    format!(
        "{rest}\n[api.db]\ntcp = [\"evil.test:5432\", \"evil.test:5433\"]\n{database}\n\n\
         [api.pinned]\norigins = [\"https://aws.test\"]\ntls = \"passthrough\"\naddresses = [\"10.77.0.0/24\"]\n\n\
         [grant.db]\ncallers = [\"lab\"]\n{budget}\n[[grant.db.allow]]\napi = \"db\"\n\n\
         [grant.pinned]\ncallers = [\"lab\"]\n[[grant.pinned.allow]]\napi = \"pinned\"\n"
    )
}

const PRIVATE: &str = "addresses = [\"10.77.0.0/24\"]";

fn lab_with(database: &str, budget: &str) -> Option<Lab> {
    Lab::start_with(&policy(database, budget), &[])
}

/// A server that greets first, as many databases do, and sends every line back. At `end of input` it says goodbye.
#[derive(Debug)]
struct Database {
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

const GREETING: &[u8] = b"\0\xffwho are you?\n";

impl Database {
    fn start(lab: &Lab) -> Self {
        let address = SocketAddr::new(address_of("evil.test"), 5432);
        let listener = lab.world().enter(|| TcpListener::bind(address).unwrap());
        let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(stream, &all));
            }
        });
        Self { seen }
    }

    fn connections(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn serve(mut stream: TcpStream, all: &Mutex<Vec<Vec<u8>>>) {
    let at = {
        let mut all = all.lock().unwrap();
        all.push(Vec::new());
        all.len() - 1
    };
    stream.write_all(GREETING).unwrap();
    let mut piece = [0; 16384];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                all.lock().unwrap()[at].extend_from_slice(&piece[..count]);
                if stream.write_all(&piece[..count]).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
    let _ = stream.write_all(b"goodbye\n");
}

/// A connection of a run to the database. Through the proxy it is answered first.
fn dial(run: &Run<'_>, way: Way, port: u16) -> Wire {
    match way {
        Way::Transparent => run.dial("evil.test", port).unwrap(),
        Way::Connect | Way::Guard => {
            let (mut proxy, proof) = proxy(run, way);
            proxy
                .send(format!("CONNECT evil.test:{port} HTTP/1.1\r\nHost: evil.test:{port}\r\n{proof}\r\n"))
                .unwrap();
            let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
            let mut answer = vec![0; established.len()];
            proxy.read_exact(&mut answer).unwrap();
            assert_eq!(answer, established, "{}", String::from_utf8_lossy(&answer));
            proxy
        }
    }
}

/// A proxy of the run, and the line that it wants.
fn proxy(run: &Run<'_>, way: Way) -> (Wire, String) {
    match way {
        Way::Guard => (run.guard().unwrap(), format!("Proxy-Authorization: {}\r\n", run.guard_proof())),
        _ => (run.proxy(), String::new()),
    }
}

fn greeted(run: &Run<'_>, way: Way) -> Wire {
    let mut wire = dial(run, way, 5432);
    let mut greeting = vec![0; GREETING.len()];
    wire.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, GREETING, "the server speaks first");
    wire
}

/// The records of connections of a run, once there are `count`.
fn connections(run: &Run<'_>, count: usize) -> Vec<Value> {
    wait::until(&format!("{count} connections are in the log"), || {
        let mut records = run.lab.audit.decisions(&run.id);
        records.retain(|record| record["kind"] == "connection");
        (records.len() >= count).then_some(records)
    })
}

#[test]
fn a_granted_tcp_destination_is_reached_by_its_name_and_recorded_with_its_bytes() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    let database = Database::start(&lab);
    // Half a TLS connection cannot be closed without a word, so not by the guard.
    for (at, way) in [Way::Transparent, Way::Connect].into_iter().enumerate() {
        let run = lab.run(&["db"]);
        let mut wire = greeted(&run, way);
        wire.send(b"select 1;\n").unwrap();
        let mut answer = [0; 10];
        wire.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"select 1;\n");
        // Half-close: what the server has to say afterwards still comes.
        wire.tcp().shutdown(Shutdown::Write).unwrap();
        assert_eq!(wire.rest(), b"goodbye\n");
        assert_eq!(database.seen.lock().unwrap()[at], b"select 1;\n", "nothing is added");
        let record = &connections(&run, 1)[0];
        for (field, value) in [
            ("verdict", Value::from("allowed")),
            ("protocol", "tcp".into()),
            ("uninspected", true.into()),
            ("method", "CONNECT".into()),
            ("host", "evil.test".into()),
            ("port", 5432.into()),
            ("grant", "db".into()),
            ("api", "db".into()),
            ("rule", "db.allow[0]".into()),
            ("request_bytes", 10.into()),
            ("response_bytes", (GREETING.len() + 10 + 8).into()),
            ("upstream", format!("{}:5432", address_of("evil.test")).into()),
        ] {
            assert_eq!(record[field], value, "{field} of {record:#}");
        }
        assert!(
            record["duration_us"].as_u64().unwrap() > 0 && record.get("credential").is_none(),
            "{record:#}"
        );
    }
    replayed_and_learnt(&lab);
}

/// The log says enough of a connection to decide on it again, and to write a rule for it.
fn replayed_and_learnt(lab: &Lab) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, policy(PRIVATE, "").replace("FOLDER", "/lab")).unwrap();
    let log = lab.broker.audit_folder();
    let run = |words: &[&str]| {
        let mut command = Command::new(program("freeboard"));
        let output = command.args(["policy", words[0]]).arg(&log).args(&words[1..]).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let file = file.to_str().unwrap();
    let same = run(&["replay", "--policy", file]);
    assert!(
        same.contains("2 of them connections that were passed on unread): 2 as before, 0 now refused"),
        "{same}"
    );
    let learnt = run(&["learn", "--caller", CALLER]);
    assert!(
        learnt.contains("tcp = [\"evil.test:5432\"]") && learnt.contains("# 2 connections, in 2 runs"),
        "{learnt}"
    );
    let elsewhere = policy(PRIVATE, "")
        .replace("FOLDER", "/lab")
        .replace(", \"evil.test:5433\"", "")
        .replace(":5432", ":5434");
    std::fs::write(file, elsewhere).unwrap();
    let narrower = run(&["replay", "--policy", file]);
    assert!(
        narrower.contains("2 x lab CONNECT tcp://evil.test:5432 (port_not_granted) in 2 runs"),
        "{narrower}"
    );
}

#[test]
fn what_is_not_granted_is_refused_and_nothing_is_dialled() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    let database = Database::start(&lab);
    let run = lab.run(&["db", "items"]);
    // Another port of the name, the port of the grant at another name, the address itself.
    for (target, reason) in [
        ("evil.test:5431", "port_not_granted"),
        ("evil.test:443", "port_not_granted"),
        ("api.test:5432", "port_not_granted"),
        ("pub.test:5432", "host_not_granted"),
        ("10.77.0.8:5432", "raw_address"),
    ] {
        let answer = run.proxy().ask(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")).answer();
        assert_eq!((answer.status, answer.reason().as_deref()), (403, Some(reason)), "{target}");
    }
    let mut raw = run.dial("10.77.0.8", 5432).unwrap();
    assert!(raw.is_closed() || raw.rest().is_empty(), "an address that was not issued");
    // A request to what is granted for connections.
    let request = "GET https://evil.test:5432/ HTTP/1.1\r\nHost: evil.test:5432\r\n\r\n";
    let answer = run.proxy().ask(request).answer();
    assert_eq!((answer.status, answer.reason().as_deref()), (403, Some("connection_only")));
    // Another run.
    let other = lab.run(&["items"]);
    assert!(other.resolve("evil.test").is_none(), "the name is not one of the run's");
    assert_eq!(database.connections(), 0);
    // Beside it requests go on as ever.
    allowed(&run, Way::Connect, "api.test", get("api.test", "/v1/items/1"));
}

#[test]
fn d08_the_address_of_a_tcp_destination_is_checked_before_it_is_dialled() {
    let Some(lab) = lab_with("", "") else { return };
    let database = Database::start(&lab);
    let run = lab.run(&["db"]);
    let connect = "CONNECT evil.test:5432 HTTP/1.1\r\nHost: evil.test:5432\r\n\r\n";
    let answer = run.proxy().ask(connect).answer();
    assert_eq!((answer.status, answer.reason().as_deref()), (403, Some("address_refused")));
    assert_eq!(dial(&run, Way::Transparent, 5432).rest(), b"");
    for record in connections(&run, 2) {
        assert_eq!((&record["verdict"], &record["reason"]), (&"denied".into(), &"address_refused".into()));
    }
    assert_eq!(database.connections(), 0);
}

#[test]
fn an_upstream_that_is_down_is_a_failure_that_a_client_of_the_proxy_can_read() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    let run = lab.run(&["db"]);
    let connect = "CONNECT evil.test:5433 HTTP/1.1\r\nHost: evil.test:5433\r\n\r\n";
    let answer = run.proxy().ask(connect).answer();
    assert_eq!((answer.status, answer.reason().as_deref()), (502, Some("upstream_unreachable")));
    assert_eq!(dial(&run, Way::Transparent, 5433).rest(), b"");
    assert!(connections(&run, 2).iter().all(|record| record["verdict"] == "failed"));
}

#[test]
fn budgets_bound_bytes_each_way_connections_and_how_many_at_once() {
    let budget =
        "budget = { calls = 4, concurrent = 1, request_bytes = \"100KiB\", response_bytes = \"200KiB\" }";
    let Some(lab) = lab_with(PRIVATE, budget) else { return };
    let database = Database::start(&lab);
    let run = lab.run(&["db"]);
    let connect = "CONNECT evil.test:5432 HTTP/1.1\r\nHost: evil.test:5432\r\n\r\n";

    let first = greeted(&run, Way::Transparent);
    let answer = run.proxy().ask(connect).answer();
    assert_eq!((answer.status, answer.reason().as_deref()), (429, Some("budget_exhausted")), "one at once");
    drop(first);
    let ended = connections(&run, 2);
    assert!(ended.iter().any(|record| record["verdict"] == "allowed"), "{ended:#?}");

    let mut second = greeted(&run, Way::Connect);
    // The server sends back what it gets, so the far end of this direction is never full.
    let mut reader = second.tcp().try_clone().unwrap();
    let drained = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = reader.read_to_end(&mut all);
        all.len()
    });
    let _ = second.send(vec![b'x'; 300 << 10]);
    drained.join().unwrap();
    let record = &connections(&run, 3)[2];
    assert_eq!(record["reason"], "connection_too_large", "{record:#}");
    assert_eq!(record["verdict"], "failed", "it had been let through");
    assert!(record["request_bytes"].as_u64().unwrap() <= 100 << 10, "{record:#}");
    assert!(database.seen.lock().unwrap()[1].len() <= 100 << 10, "no byte more goes on");

    for ended in [4, 5] {
        drop(greeted(&run, Way::Transparent));
        connections(&run, ended);
    }
    assert_eq!(run.proxy().ask(connect).answer().status, 429, "four connections were all");
    assert_eq!(connections(&run, 6)[5]["detail"], "calls = 4");
}

#[test]
fn g18_a_connection_is_cut_within_a_second_when_its_permission_goes() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    let _database = Database::start(&lab);
    let without = policy(PRIVATE, "").replace("\"evil.test:5432\", ", "");
    let reload = |_: &Run<'_>| {
        lab.write_policy(&without);
        lab.broker.reload();
    };
    let revoke = |run: &Run<'_>| {
        let status = Command::new(program("freeboard"))
            .args(["grants", "revoke", "run", &run.id, "--by", "tester", "--config"])
            .arg(lab.broker.config_file())
            .output()
            .unwrap();
        assert!(status.status.success(), "{status:?}");
    };
    type Taking<'a> = (&'a str, &'a dyn Fn(&Run<'_>), &'a str);
    let ways: [Taking<'_>; 2] =
        [("revoked", &revoke, "grant_revoked"), ("reloaded", &reload, "port_not_granted")];
    for (what, take, reason) in ways {
        let run = lab.run(&["db"]);
        let mut open: Vec<Wire> = WAYS.into_iter().map(|way| greeted(&run, way)).collect();
        take(&run);
        let taken = Instant::now();
        for wire in &mut open {
            assert_eq!(wire.rest(), b"", "{what}");
            assert!(taken.elapsed() < Duration::from_secs(1), "{what}: cut after {:?}", taken.elapsed());
        }
        for record in connections(&run, 2) {
            assert_eq!(
                (&record["verdict"], &record["reason"]),
                (&"failed".into(), &reason.into()),
                "{record:#}"
            );
            assert_eq!(record["response_bytes"], GREETING.len(), "what passed before is in the record");
        }
    }
    lab.write_policy(&policy(PRIVATE, ""));
    lab.broker.reload();
    let run = lab.run(&["db"]);
    let mut open = greeted(&run, Way::Transparent);
    let id = run.id.clone();
    let trace = run.close();
    assert_eq!(open.rest(), b"");
    assert_eq!((trace.allowed, trace.failed), (0, 1), "{trace:?}");
    wait::until_true("the cut is in the log", || {
        lab.audit.decisions(&id).iter().any(|r| r["kind"] == "connection" && r["reason"] == "run_ended")
    });
}

#[test]
fn a_program_in_a_sandbox_talks_to_a_database_as_if_there_were_no_gate() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    let database = Database::start(&lab);
    let client = "import socket\n\
        s = socket.create_connection(('evil.test', 5432), 10)\n\
        assert s.recv(100).endswith(b'who are you?\\n')\n\
        s.sendall(b'from inside')\n\
        assert s.recv(100) == b'from inside'\n\
        s.shutdown(socket.SHUT_WR)\n\
        print(s.recv(100).decode())\n\
        try:\n    socket.create_connection(('evil.test', 5434), 10).recv(1) or print('closed')\n\
        except OSError as error: print('closed')\n";
    let ran = lab.sandbox(&["db"], &["/usr/bin/python3", "-c", client]).succeeded();
    assert_eq!(ran.stdout.split_whitespace().collect::<Vec<_>>(), ["goodbye", "closed"], "{ran:?}");
    assert_eq!(database.seen.lock().unwrap()[..], [b"from inside".to_vec()]);
}

/// TLS to `aws.test` with the trust of the upstream's own authority, as a client that pins has it.
fn pinned(run: &Run<'_>, way: Way, name: &str) -> std::io::Result<Wire> {
    let clear = match way {
        Way::Transparent => run.dial("aws.test", 443)?,
        Way::Connect | Way::Guard => {
            let (mut proxy, proof) = proxy(run, way);
            let answer =
                proxy.ask(format!("CONNECT aws.test:443 HTTP/1.1\r\nHost: aws.test:443\r\n{proof}\r\n"));
            assert_eq!(answer.status(), Some(200), "{answer:?}");
            proxy
        }
    };
    clear.start_tls(name, run.lab.upstream.ca().pem(), &[b"http/1.1"])
}

#[test]
fn a_pinned_client_verifies_the_server_itself_and_the_record_says_that_nobody_looked() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    for way in WAYS {
        let run = lab.run(&["pinned", "items"]);
        lab.upstream.take();
        let mut wire = pinned(&run, way, "aws.test").unwrap();
        let answer = wire.ask(get("aws.test", "/anything?at=all")).answer();
        assert_eq!(answer.status, 200);
        let recorded = lab.upstream.take();
        assert_eq!(
            (recorded[0].server_name.as_str(), recorded[0].field("authorization")),
            ("aws.test", None)
        );
        drop(wire);
        let record = &connections(&run, 1)[0];
        assert_eq!(
            (&record["protocol"], &record["uninspected"]),
            (&"tls".into(), &true.into()),
            "{record:#}"
        );
        assert_eq!((&record["verdict"], &record["host"]), (&"allowed".into(), &"aws.test".into()));
        assert!(record["request_bytes"].as_u64().unwrap() > 200, "the hello counts: {record:#}");
        assert!(record.get("path").is_none(), "{record:#}");
        // Our own authority is not what such a client trusts, and other hosts are read as ever.
        allowed(&run, way, "api.test", get("api.test", "/v1/items/1"));
    }
}

#[test]
fn a24_only_the_granted_name_in_the_clear_is_passed_on() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    let run = lab.run(&["pinned", "items"]);
    let upstream = lab.upstream.bytes();
    let mut wanted = Vec::new();
    for way in WAYS {
        assert!(pinned(&run, way, "api.test").is_err(), "another granted name");
        assert!(pinned(&run, way, "evil.test").is_err(), "another name");
        assert!(pinned(&run, way, "10.77.0.7").is_err(), "an address has no server name");
        wanted.extend(["name_mismatch", "name_mismatch", "no_server_name"]);
    }
    // A hello with an encrypted one inside: the name in the clear proves nothing.
    let mut clear = run.dial("aws.test", 443).unwrap();
    clear.send(hello_with_ech(&lab)).unwrap();
    assert_eq!(clear.rest(), [21, 3, 3, 0, 2, 2, 49], "an alert and the end");
    wanted.push("encrypted_hello");
    // What is no TLS.
    let answer = run.dial("aws.test", 443).unwrap().ask(get("aws.test", "/")).answer();
    assert_eq!(answer.reason().as_deref(), Some("plain_http"));
    let mut garbage = run.dial("aws.test", 443).unwrap();
    garbage.send(b"\x16\x03\x01\x00\x05hello").unwrap();
    garbage.rest();
    wanted.extend(["plain_http", "tls_refused"]);
    let records = run.decisions(wanted.len());
    let mut reasons: Vec<&str> = records.iter().map(|record| record["reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(reasons, wanted, "{records:#?}");
    assert_eq!(lab.upstream.bytes(), upstream, "no byte of them reached an upstream");
}

/// The first flight of a client that hides its name (GREASE, RFC 9849 6.2: nobody can tell it from a real one).
fn hello_with_ech(lab: &Lab) -> Vec<u8> {
    use rustls::client::{EchGreaseConfig, EchMode};
    use rustls::crypto::hpke::Hpke as _;
    let suite = rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_128;
    let (public, _) = suite.generate_key_pair().unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    use rustls::pki_types::pem::PemObject as _;
    let ca = rustls::pki_types::CertificateDer::from_pem_slice(lab.upstream.ca().pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_ech(EchMode::Grease(EchGreaseConfig::new(suite, public)))
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("aws.test").unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_hello_that_comes_byte_by_byte_is_passed_on_as_it_came() {
    let Some(lab) = lab_with(PRIVATE, "") else { return };
    let run = lab.run(&["pinned"]);
    let config = freeboard_tests::wire::client_config(lab.upstream.ca().pem(), &[b"http/1.1"]);
    let name = rustls::pki_types::ServerName::try_from("aws.test").unwrap();
    let mut connection = rustls::ClientConnection::new(config, name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    let mut clear = run.dial("aws.test", 443).unwrap();
    for byte in &hello {
        clear.send([*byte]).unwrap();
    }
    while connection.is_handshaking() {
        connection.complete_io(&mut clear).unwrap();
    }
    let mut stream = rustls::StreamOwned::new(connection, clear);
    stream.write_all(get("aws.test", "/").as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn curl_with_a_pinned_key_and_openssl_reach_the_real_server_from_inside_a_sandbox() {
    let Some(lab) = Lab::start_with(&policy(PRIVATE, ""), &["aws.test"]) else { return };
    let nginx = real::nginx(&lab, &[("aws.test", "location / { return 200 \"the real server\\n\"; }")]);
    let ca = lab.upstream.ca().pem();
    // The pin is of the key that the server really has.
    let script = format!(
        "cat > ca.pem <<'END'\n{ca}END\n\
         openssl s_client -connect aws.test:443 -servername aws.test -CAfile ca.pem -verify_return_error </dev/null \
           2>/dev/null > session && openssl x509 -in session -pubkey -noout | openssl pkey -pubin -outform der \
           | openssl dgst -sha256 -binary | base64 > pin || exit 1\n\
         curl -sS --cacert ca.pem --pinnedpubkey \"sha256//$(cat pin)\" --http1.1 https://aws.test/pinned || exit 2\n\
         openssl s_client -connect aws.test:443 -noservername -CAfile ca.pem -verify_return_error </dev/null \
           >/dev/null 2>&1 && exit 3\n\
         curl -sS --http1.1 https://aws.test/ 2>/dev/null && exit 4\n\
         exit 0"
    );
    let ran = lab.shell(&["pinned"], &script).succeeded();
    assert_eq!(ran.stdout, "the real server\n", "{ran:?} {}", nginx.log());
}
