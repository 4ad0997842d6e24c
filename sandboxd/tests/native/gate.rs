//! The gate's sockets: made in the run's own network namespace, handed out, and the only thing that a program reaches.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_control::{Door, Prepared};
use freeboard_sandboxd::job::{Job, NoSink};
use freeboard_sandboxd::provider::native::NativeConfig;
use freeboard_sandboxd::provider::{Plan, Provider};

use crate::support::*;

const CA: &str = "-----BEGIN CERTIFICATE-----\nTHE-INTERCEPTION-CA\n-----END CERTIFICATE-----\n";

fn plan(job: Job) -> Plan {
    plan_with_ca(job, CA)
}

fn plan_with_ca(job: Job, ca_pem: &str) -> Plan {
    let prepared = Prepared {
        policy_digest: String::new(),
        floor: None,
        ttl_seconds: None,
        ports: vec![8443],
        ca_pem: ca_pem.into(),
        surface: Vec::new(),
        variables: Vec::new(),
    };
    Plan { job, prepared: Some(prepared) }
}

#[test]
fn every_address_ends_at_the_doors_of_the_broker() {
    with_provider(NativeConfig::default(), async |provider| {
        let script = "import socket\n\
                      for a in [('203.0.113.7', 443), ('2001:db8::1', 8443), ('10.0.0.1', 80)]:\n\
                      \x20   s = socket.create_connection(a, 5); s.sendall(b'x'); print(s.recv(100).decode())\n\
                      try: socket.create_connection(('127.0.0.1', 5), 1); print('connected')\n\
                      except OSError: pass\n";
        let plan = plan(python(script));
        let mut sandbox = provider.create(&plan).await.unwrap();
        let evidence = sandbox.measure().await.unwrap();
        assert!(evidence.facts.iter().any(|fact| fact.name == "gate" && fact.value == "doors of the broker"));
        let doors = sandbox.take_doors();
        let words: Vec<Door> = doors.iter().map(|(door, _)| *door).collect();
        for door in [
            Door::Tcp { port: 443 },
            Door::Tcp { port: 80 },
            Door::Tcp { port: 8443 },
            Door::DnsUdp,
            Door::DnsTcp,
        ] {
            assert!(words.contains(&door), "{door:?} in {words:?}");
        }
        for (door, socket) in doors {
            if let Door::Tcp { .. } = door {
                answer_with_destination(socket);
            }
        }
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        let (code, stdout, stderr) = first(&outcome);
        assert_eq!(code, 0, "{stderr}");
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(lines, ["[::ffff:203.0.113.7]:443", "[2001:db8::1]:8443", "[::ffff:10.0.0.1]:80"]);
    });
}

/// A broker of one line: tells each connection where it meant to go.
fn answer_with_destination(socket: OwnedFd) {
    let listener = TcpListener::from(socket);
    std::thread::spawn(move || {
        listener.set_nonblocking(false).unwrap();
        while let Ok((mut connection, _)) = listener.accept() {
            connection.set_nonblocking(false).unwrap();
            let _ = connection.read(&mut [0; 16]);
            let destination = connection.local_addr().unwrap();
            let _ = connection.write_all(destination.to_string().as_bytes());
        }
    });
}

#[test]
fn the_interception_ca_is_where_tools_look() {
    with_provider(NativeConfig::default(), async |provider| {
        let script = "for v in SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE GIT_SSL_CAINFO CARGO_HTTP_CAINFO PIP_CERT \
                      AWS_CA_BUNDLE NODE_EXTRA_CA_CERTS; do eval \"f=\\$$v\"; \
                      grep -q THE-INTERCEPTION-CA \"$f\" || echo \"$v: $f\"; done; \
                      for f in /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem /etc/pki/tls/certs/ca-bundle.crt; do \
                      grep -q THE-INTERCEPTION-CA $f || echo $f; done; cat /etc/resolv.conf";
        let plan = plan(shell(script));
        let mut sandbox = provider.create(&plan).await.unwrap();
        sandbox.measure().await.unwrap();
        let (_, stdout, _) = first(&sandbox.release(Arc::new(NoSink)).await.unwrap());
        assert!(stdout.starts_with("nameserver 198.18.0.1\n"), "{stdout}");
    });
}

#[test]
fn the_sockets_are_the_brokers_alone() {
    with_provider(NativeConfig::default(), async |provider| {
        let plan = plan(shell("sleep 0.1"));
        let mut sandbox = provider.create(&plan).await.unwrap();
        let evidence = sandbox.measure().await.unwrap();
        let descriptors = evidence.facts.iter().find(|fact| fact.name == "descriptors").unwrap();
        assert!(descriptors.met, "{descriptors:?}");
        // Positive control: they exist, and we have them.
        assert!(sandbox.take_doors().len() >= 5);
    });
}

#[test]
fn java_finds_the_interception_ca_where_it_is_installed() {
    if !std::path::Path::new("/usr/bin/keytool").exists() {
        return;
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let config = giving(Allowance { memory_mib: 1024, ..Allowance::default() });
    with_provider(config, async |provider| {
        let script = "keytool -J-Xint -J-XX:TieredStopAtLevel=1 -list -keystore /etc/ssl/certs/java/cacerts -storepass changeit";
        let plan = plan_with_ca(shell(script), &ca.pem());
        let mut sandbox = provider.create(&plan).await.unwrap();
        sandbox.measure().await.unwrap();
        let (code, stdout, stderr) = first(&sandbox.release(Arc::new(NoSink)).await.unwrap());
        assert!(
            code == 0 && stdout.contains("freeboard-0, ") && stdout.contains("trustedCertEntry"),
            "{stdout} {stderr}"
        );
    });
}
