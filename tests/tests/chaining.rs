//! Upstreams behind a proxy that the broker has to use: every check is kept, and nothing goes past it. P2, P5.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::process::Command;

use freeboard_tests::expect::{allowed, get};
use freeboard_tests::lab::{C1, Lab, POLICY, Run, WAYS, Way};
use freeboard_tests::real::{self, Server};
use freeboard_tests::upstream::{HOSTS, address_of};
use freeboard_tests::wait;

/// The lab's policy with a destination of connections, and an API whose private address is not named.
fn policy() -> String {
    let more = "[api.db]\ntcp = [\"evil.test:5432\"]\naddresses = [\"10.77.0.0/24\"]\n\
        [grant.db]\ncallers = [\"lab\"]\n[[grant.db.allow]]\napi = \"db\"\n\
        [api.unnamed]\norigins = [\"https://pub.test:444\", \"https://pub.test:9999\"]\ntrust = { ca_file = \"FOLDER/upstream-ca.pem\" }\n\
        [grant.unnamed]\ncallers = [\"lab\"]\n[[grant.unnamed.allow]]\napi = \"unnamed\"\nroutes = [\"GET /**\"]\n\
        [api.strange]\norigins = [\"https://cdn.test:8443\"]\naddresses = [\"10.77.0.0/24\"]\n\
        [grant.strange]\ncallers = [\"lab\"]\n[[grant.strange.allow]]\napi = \"strange\"\nroutes = [\"GET /**\"]\n";
    format!("{POLICY}\n{more}")
}

const PASSWORD: &str = "canary-proxy-51b7e0c9d3a2f468";

fn config(more: &str) -> String {
    format!(
        "[broker.upstream_proxy]\naddress = \"{}:3128\"\ncredential_file = \"FOLDER/secrets/proxy\"\n{more}",
        address_of("evil.test")
    )
}

fn lab_with(more: &str) -> Option<Lab> {
    if !std::path::Path::new("/usr/sbin/squid").exists() {
        eprintln!("SKIPPED: squid is not installed (tests/run installs it)");
        return None;
    }
    let lab = Lab::start_configured(&policy(), &[], &config(more))?;
    lab.secret("proxy", &format!("robot:{PASSWORD}\n"));
    Some(lab)
}

/// A squid. It leaves its shared memory behind, which is removed by its name.
struct Squid {
    server: Option<Server>,
    name: String,
}

impl Drop for Squid {
    fn drop(&mut self) {
        drop(self.server.take());
        for part in ["metadata", "queues", "readers"] {
            let _: std::io::Result<()> =
                std::fs::remove_file(format!("/dev/shm/{}-cf__{part}.shm", self.name));
        }
    }
}

/// A real squid that wants a user and opens tunnels to these ports only.
fn squid(lab: &Lab) -> Squid {
    let folder = lab.folder().join("squid");
    std::fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let hash = Command::new("openssl").args(["passwd", "-apr1", PASSWORD]).output().unwrap().stdout;
    std::fs::write(at("users"), format!("robot:{}", String::from_utf8(hash).unwrap())).unwrap();
    let hosts: String = HOSTS.iter().map(|host| format!("{} {host}\n", address_of(host))).collect();
    std::fs::write(at("hosts"), hosts).unwrap();
    let text = format!(
        "http_port {}:3128\npid_filename none\ncache_log {}\naccess_log stdio:{}\nlogfile_rotate 0\ncache deny all\n\
         hosts_file {}\ndns_nameservers 127.0.0.1\npinger_enable off\nnetdb_filename none\nvisible_hostname squid.test\n\
         coredump_dir {}\nshutdown_lifetime 0 seconds\ncache_effective_user nobody\ncache_effective_group nogroup\n\
         auth_param basic program /usr/lib/squid/basic_ncsa_auth {}\nacl known proxy_auth REQUIRED\n\
         acl open port 443 5432 9999\nhttp_access deny !open\nhttp_access allow CONNECT known\nhttp_access deny all\n",
        address_of("evil.test"),
        at("cache.log"),
        at("access.log"),
        at("hosts"),
        folder.display(),
        at("users"),
    );
    std::fs::write(at("squid.conf"), text).unwrap();
    if nix::unistd::geteuid().is_root() {
        for path in [folder.clone(), folder.join("users"), folder.join("hosts")] {
            chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    let mut command = Command::new("/usr/sbin/squid");
    // By name, so that several at once share nothing.
    let name = format!("lab{}", std::process::id());
    command.args(["-N", "-n", &name, "-f", &at("squid.conf")]).env("PATH", real::search_path());
    let server = Server::start(lab, "squid", &mut command).wait_port(lab, "evil.test", 3128);
    Squid { server: Some(server), name }
}

/// What squid wrote down, once it says so: it writes when a tunnel ends.
fn seen(lab: &Lab, wanted: &str) -> String {
    let path = lab.folder().join("squid/access.log");
    wait::until(&format!("squid has written of {wanted}"), || {
        std::fs::read_to_string(&path).ok().filter(|log| log.contains(wanted))
    })
}

fn reason(run: &Run<'_>, way: Way, host: &str, port: u16) -> (u16, String) {
    let mut wire = run.tls_with(way, host, port, host, &[b"http/1.1"]).unwrap();
    let authority = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
    let answer = wire.ask(get(&authority, "/v1/items/1")).answer();
    let reason = answer.reason().unwrap_or_else(|| panic!("{answer:?}"));
    (answer.status, reason)
}

#[test]
fn requests_go_through_squid_with_every_check_and_their_credential_stays_inside_tls() {
    let Some(lab) = lab_with("") else { return };
    let _squid = squid(&lab);
    for way in WAYS {
        let run = lab.run(&["items"]);
        let (_, recorded) = allowed(&run, way, "api.test", get("api.test", "/v1/items/1"));
        assert_eq!(recorded.field("authorization").unwrap(), format!("Bearer {C1}"));
        assert!(
            recorded.field("proxy-authorization").is_none() && recorded.field("via").is_none(),
            "{recorded:?}"
        );
        let record = &run.decisions(1)[0];
        assert_eq!(record["upstream"], format!("{}:3128", address_of("evil.test")), "{record:#}");
        run.close();
    }
    let log = seen(&lab, "CONNECT api.test:443");
    assert!(log.contains("robot") && !log.contains(C1), "{log}");
    // An upstream whose certificate nobody vouches for, an address that is private and not named, a port that squid refuses.
    let run = lab.run(&["items", "unnamed", "strange"]);
    assert_eq!(reason(&run, Way::Connect, "pub.test", 444), (403, "address_refused".to_owned()));
    assert_eq!(reason(&run, Way::Connect, "cdn.test", 8443), (502, "upstream_proxy_refused".to_owned()));
    let detail = run.decisions(2)[1]["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail, "the proxy answered 403");
    assert!(
        !seen(&lab, "cdn.test:8443").contains("pub.test"),
        "what was refused here was not asked of squid"
    );
    for (place, bytes) in
        [("the audit log", lab.audit.text().into_bytes()), ("the output", lab.broker.output())]
    {
        assert!(!String::from_utf8_lossy(&bytes).contains(PASSWORD), "{place}");
    }
}

#[test]
fn a_proxy_that_fails_is_told_apart_and_never_gone_past() {
    let Some(lab) = lab_with("") else { return };
    let run = lab.run(&["items", "unnamed"]);
    let unreachable = (502, "upstream_proxy_unreachable".to_owned());
    assert_eq!(reason(&run, Way::Transparent, "api.test", 443), unreachable, "no proxy");
    let squid = squid(&lab);
    lab.secret("proxy", "robot:wrong");
    assert_eq!(reason(&run, Way::Transparent, "api.test", 443), (502, "upstream_proxy_auth".to_owned()));
    lab.secret("proxy", "no colon in it");
    assert_eq!(reason(&run, Way::Connect, "api.test", 443), (502, "upstream_proxy_auth".to_owned()));
    std::fs::remove_file(lab.folder().join("secrets/proxy")).unwrap();
    assert_eq!(reason(&run, Way::Connect, "api.test", 443), (502, "upstream_proxy_auth".to_owned()));
    assert_eq!(lab.upstream.connections(), 0, "nothing went past the proxy");
    // A replaced file is used at once.
    lab.secret("proxy", &format!("robot:{PASSWORD}"));
    allowed(&lab.run(&["items"]), Way::Connect, "api.test", get("api.test", "/v1/items/1"));
    let connections = lab.upstream.connections();
    drop(squid);
    assert_eq!(reason(&lab.run(&["items"]), Way::Connect, "api.test", 443), unreachable, "the proxy is gone");
    assert_eq!(lab.upstream.connections(), connections);
}

#[test]
fn a_proxy_that_leads_somewhere_else_gets_nothing() {
    let Some(lab) = lab_with("") else { return };
    let proxy: SocketAddr = (address_of("evil.test"), 3128).into();
    let listener = lab.world().enter(|| TcpListener::bind(proxy).unwrap());
    // Says yes to everything and connects to pub.test, which has a good certificate for another name.
    let elsewhere: SocketAddr = (address_of("pub.test"), 443).into();
    std::thread::scope(|scope| {
        let world = lab.world();
        scope.spawn(move || {
            let (mut guest, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                guest.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(
                b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\nProxy-Authorization: Basic "
            ));
            guest.write_all(b"HTTP/1.1 200 fine\r\n\r\n").unwrap();
            let upstream = world.connect(elsewhere).unwrap();
            let (mut from, mut to) = (guest.try_clone().unwrap(), upstream.try_clone().unwrap());
            let forth = std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let _: std::io::Result<u64> = std::io::copy(&mut (&upstream), &mut (&guest));
            let _: std::io::Result<()> = guest.shutdown(std::net::Shutdown::Both);
            let _: std::io::Result<()> = upstream.shutdown(std::net::Shutdown::Both);
            let _: std::thread::Result<std::io::Result<u64>> = forth.join();
        });
        let run = lab.run(&["items"]);
        assert_eq!(reason(&run, Way::Connect, "api.test", 443), (502, "upstream_untrusted".to_owned()));
    });
    assert!(lab.upstream.take().is_empty(), "no request was sent");
}

fn database(lab: &Lab) {
    let address: SocketAddr = (address_of("evil.test"), 5432).into();
    let listener = lab.world().enter(|| TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // It speaks first: these bytes may come with the proxy's answer.
            let greet = |stream: &mut TcpStream| stream.write_all(b"hello\n");
            let _: std::io::Result<()> = greet(&mut stream);
        }
    });
}

#[test]
fn connections_that_are_passed_on_unread_go_to_the_address_that_was_checked() {
    let Some(lab) = lab_with("") else { return };
    let _squid = squid(&lab);
    database(&lab);
    let run = lab.run(&["db"]);
    assert_eq!(run.dial("evil.test", 5432).unwrap().rest(), b"hello\n");
    let log = seen(&lab, ":5432");
    assert!(log.contains(&format!("CONNECT {}:5432", address_of("evil.test"))), "{log}");
}

#[test]
fn where_the_proxy_resolves_names_only_what_a_certificate_proves_is_sent() {
    let Some(lab) = lab_with("resolve = \"proxy\"\ndirect = [\"api.test\"]\n") else { return };
    let _squid = squid(&lab);
    database(&lab);
    let run = lab.run(&["db", "unnamed", "pub", "items"]);
    assert_eq!(run.dial("evil.test", 5432).unwrap().rest(), b"", "nobody could tell where it ends");
    let record = &run.decisions(1)[0];
    assert_eq!(
        (&record["verdict"], &record["reason"]),
        (&"denied".into(), &"address_refused".into()),
        "{record:#}"
    );
    // Nothing listens there: squid resolved the name, without an address that the policy names, and could not connect.
    assert_eq!(reason(&run, Way::Connect, "pub.test", 9999), (502, "upstream_proxy_refused".to_owned()));
    allowed(&run, Way::Connect, "pub.test", get("pub.test", "/"));
    allowed(&run, Way::Connect, "api.test", get("api.test", "/v1/items/1"));
    run.close();
    let log = seen(&lab, "CONNECT pub.test:443");
    assert!(!log.contains("api.test") && !log.contains("5432"), "{log}");
}
