//! P1: what a program tries besides HTTPS to a granted name ends in the gate, with a record. Attack class D.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::Write as _;
use std::time::Duration;

use freeboard_tests::dns::{self, ask_tcp, ask_udp};
use freeboard_tests::expect::{allowed, get, refused_on};
use freeboard_tests::lab::{Lab, POLICY, RESOLVER, Run, WAYS, Way};
use freeboard_tests::wait;
use freeboard_tests::wire::Wire;
use serde_json::Value;

fn with_run(grants: &[&str], body: impl Fn(&Run<'_>)) {
    let Some(lab) = Lab::start() else { return };
    body(&lab.run(grants));
}

/// The one new record that `work` causes.
fn one_record(run: &Run<'_>, work: impl FnOnce()) -> Value {
    let before = run.lab.audit.decisions(&run.id).len();
    work();
    let records = wait::until("the attempt is in the log", || {
        let records = run.lab.audit.decisions(&run.id);
        (records.len() > before).then_some(records)
    });
    assert_eq!(records.len(), before + 1, "{:#?}", &records[before..]);
    records[before].clone()
}

#[test]
fn d01_a_raw_address_gets_tls_and_a_403_that_says_why() {
    with_run(&["items", "pub"], |run| {
        let before = run.lab.upstream.bytes();
        // With a granted server name at an address that was not issued for it.
        for (address, name) in
            [("1.1.1.1", "api.test"), ("10.77.0.1", "api.test"), ("2606:4700::1111", "pub.test")]
        {
            let record = one_record(run, || {
                let tls = run.dial(address, 443).unwrap().start_tls(name, &run.ca_pem, &[b"http/1.1"]);
                if let Ok(mut wire) = tls {
                    let response = wire.ask(get(name, "/v1/items/1")).answer();
                    assert_eq!(
                        (response.status, response.reason().as_deref()),
                        (403, Some("raw_address")),
                        "{address}"
                    );
                }
            });
            assert_eq!(
                (record["verdict"].as_str(), record["reason"].as_str()),
                (Some("denied"), Some("raw_address"))
            );
        }
        assert_eq!(run.lab.upstream.bytes(), before);
        assert_eq!(run.lab.upstream.connections(), 0);
    });
}

#[test]
fn d01_tls_without_a_server_name_is_refused() {
    with_run(&["items"], |run| {
        let record = one_record(run, || {
            // rustls sends no server name for an address.
            let tls = run.dial("api.test", 443).unwrap().start_tls("1.2.3.4", &run.ca_pem, &[]);
            assert!(tls.is_err());
        });
        assert_eq!(record["reason"], "no_server_name");
    });
}

#[test]
fn d02_d15_other_ports_are_closed_and_recorded_with_what_was_meant() {
    with_run(&["items"], |run| {
        for (address, port) in [
            ("10.0.0.5", 5432),
            ("140.82.112.3", 22),
            ("140.82.112.3", 9418),
            ("169.254.169.254", 8080),
            ("1.1.1.1", 853),
            ("2606:4700::1111", 25),
        ] {
            let record = one_record(run, || {
                // Reset at once, or accepted by the catch-all and closed.
                if let Ok(mut wire) = run.dial(address, port) {
                    let _ = wire.send("SSH-2.0-x\r\n");
                    assert!(wire.rest().is_empty(), "something answered on {address}:{port}");
                }
            });
            assert_eq!(record["verdict"], "denied");
            assert_eq!(
                (record["host"].as_str(), record["port"].as_u64()),
                (Some(address), Some(port.into())),
                "{record:#?}"
            );
        }
    });
}

#[test]
fn d03_udp_443_is_rejected_at_once() {
    with_run(&["pub"], |run| {
        for address in
            ["1.1.1.1".parse().unwrap(), run.resolve("pub.test").unwrap(), "2606:4700::1111".parse().unwrap()]
        {
            let begun = std::time::Instant::now();
            let socket = run.gate.udp((address, 443).into()).unwrap();
            socket.send(b"quic").unwrap();
            let refused = socket.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            assert!(begun.elapsed() < Duration::from_secs(1));
        }
    });
}

#[test]
fn d04_only_granted_names_are_answered_by_any_server_over_any_transport() {
    with_run(&["items"], |run| {
        let tunnel = "7061737377642d73747265616d.evil.test";
        for server in [
            RESOLVER,
            "8.8.8.8".parse().unwrap(),
            "127.0.0.11".parse().unwrap(),
            "2001:4860:4860::8888".parse().unwrap(),
        ] {
            for kind in [dns::A, dns::AAAA, dns::TXT, dns::HTTPS, dns::ANY] {
                for name in [tunnel, "evil.test", "x.api.test", "test", "metadata.google.internal"] {
                    let answer = ask_udp(&run.gate, server, name, kind).unwrap();
                    assert_eq!((answer.code, answer.records), (dns::REFUSED, 0), "{name} {kind} at {server}");
                    assert_eq!(answer.extended_error, Some(17));
                }
            }
            let answer = ask_tcp(&run.gate, server, tunnel, dns::TXT).unwrap();
            assert_eq!((answer.code, answer.records), (dns::REFUSED, 0));
            let answer = ask_udp(&run.gate, server, "api.test", dns::A).unwrap();
            assert_eq!((answer.code, answer.addresses.len()), (dns::NO_ERROR, 1));
            assert_eq!(
                answer.addresses,
                ask_tcp(&run.gate, server, "api.test", dns::A).unwrap().addresses,
                "one name, one address"
            );
        }
        // HTTPS and SVCB are answered empty: no h3 hint, no ECH key (D17).
        for kind in [dns::HTTPS, dns::SVCB] {
            let answer = ask_udp(&run.gate, RESOLVER, "api.test", kind).unwrap();
            assert_eq!((answer.code, answer.records), (dns::NO_ERROR, 0));
        }
        let v6 = ask_udp(&run.gate, RESOLVER, "api.test", dns::AAAA).unwrap();
        assert_eq!(v6.code, dns::NO_ERROR);
        assert!(v6.addresses.iter().all(std::net::IpAddr::is_ipv6));
        assert!(
            run.lab
                .audit
                .decisions(&run.id)
                .iter()
                .any(|record| record["kind"] == "dns" && record["host"] == tunnel)
        );
    });
}

#[test]
fn d04_malformed_dns_gets_no_answer_that_helps_and_kills_nothing() {
    with_run(&["items"], |run| {
        let socket = run.gate.udp((RESOLVER, 53).into()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let query = dns::query(0x4242, "api.test", dns::A);
        for length in 0..query.len() {
            socket.send(&query[..length]).unwrap();
            let _ = socket.recv(&mut [0; 512]);
        }
        let mut looped = query.clone();
        looped[12..14].copy_from_slice(&[0xc0, 12]);
        for bad in [looped, vec![0xff; 512], vec![0; 1232]] {
            socket.send(&bad).unwrap();
            let _ = socket.recv(&mut [0; 512]);
        }
        assert!(run.resolve("api.test").is_some(), "the resolver still answers");
    });
}

#[test]
fn d07_ipv6_is_held_like_ipv4() {
    with_run(&["items"], |run| {
        let v6 = ask_udp(&run.gate, RESOLVER, "api.test", dns::AAAA).unwrap().addresses;
        for address in v6 {
            let mut wire = run
                .dial(&address.to_string(), 443)
                .unwrap()
                .start_tls("api.test", &run.ca_pem, &[b"http/1.1"])
                .unwrap();
            assert_eq!(wire.ask(get("api.test", "/v1/items/1")).answer().status, 200);
            assert_eq!(wire.ask(get("api.test", "/v1/admin")).answer().status, 403);
        }
    });
}

/// The lab's policy with one more API without a list of private addresses.
fn policy_with_inside() -> String {
    format!(
        "{POLICY}\n[api.inside]\norigins = [\"https://inside.test\"]\n\n[grant.inside]\ncallers = [\"lab\"]\n[[grant.inside.allow]]\napi = \"inside\"\nroutes = [\"GET /**?*\"]\n"
    )
}

#[test]
fn d09_d10_a_granted_name_that_points_inside_is_not_dialled() {
    for address in [
        "10.0.0.5",
        "100.64.0.1",
        "198.18.0.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "0.0.0.0",
        "127.0.0.1",
        "10.77.0.1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "::ffff:10.77.0.1",
        "64:ff9b::a4d:1",
        "2002:a4d:1::",
        "255.255.255.255",
        "224.0.0.1",
        "::",
    ] {
        let Some(lab) = Lab::start_resolving(&policy_with_inside(), &[], &[("inside.test", address)]) else {
            return;
        };
        let run = lab.run(&["inside"]);
        let response = run.tls(Way::Connect, "inside.test").ask(get("inside.test", "/x")).answer();
        assert_eq!(
            (response.status, response.reason().as_deref()),
            (403, Some("address_refused")),
            "{address}"
        );
        assert_eq!(lab.upstream.connections(), 0, "{address}");
    }
}

#[test]
fn d08_one_private_address_in_the_set_is_not_dialled() {
    // The override gives one address per name here; the named range lets 10.77.0.0/24 and nothing else through.
    let policy = policy_with_inside().replace(
        "origins = [\"https://inside.test\"]",
        "origins = [\"https://inside.test\"]\naddresses = [\"10.77.0.0/25\"]",
    );
    let Some(lab) = Lab::start_resolving(&policy, &[], &[("inside.test", "10.77.0.200")]) else { return };
    let run = lab.run(&["inside"]);
    let response = run.tls(Way::Transparent, "inside.test").ask(get("inside.test", "/x")).answer();
    assert_eq!(response.reason().as_deref(), Some("address_refused"));
}

#[test]
fn d10_d11_metadata_and_loopback_are_refused_by_proxy() {
    with_run(&["items", "pub", "echo"], |run| {
        for host in [
            "169.254.169.254",
            "[fd00:ec2::254]",
            "metadata.google.internal",
            "100.100.100.200",
            "168.63.129.16",
            "127.0.0.1",
            "localhost",
            "[::1]",
            "broker.test",
            "10.77.0.1",
            "198.18.0.1",
            "host.docker.internal",
        ] {
            refused_on(
                run,
                &mut run.proxy(),
                format!("GET http://{host}/latest/meta-data/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                &[400, 403],
            );
            refused_on(
                run,
                &mut run.proxy(),
                format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n"),
                &[400, 403],
            );
            refused_on(
                run,
                &mut run.proxy(),
                format!("CONNECT {host}:3128 HTTP/1.1\r\nHost: {host}:3128\r\n\r\n"),
                &[400, 403],
            );
        }
    });
}

#[test]
fn d16_socks_is_closed_without_confusion() {
    with_run(&["items"], |run| {
        let greetings: [&[u8]; 5] = [
            &[5, 1, 0],
            &[4, 1, 1, 0xbb, 1, 1, 1, 1, 0],
            &[4, 1, 1, 0xbb, 0, 0, 0, 1, 0, b'e', b'v', b'i', b'l', 0],
            &[5, 1, 0, 5, 1, 0, 3, 8, b'a', b'p', b'i', b'.', b't', b'e', b's', b't', 1, 0xbb],
            b"\x05\x01\x00\x05\x03\x00\x03\x13evil.test\0.api.test\x01\xbb",
        ];
        for greeting in greetings {
            for port in [3128, 80, 443] {
                let mut wire = run.dial("10.1.1.1", port).unwrap();
                wire.set_patience(Duration::from_secs(15));
                let _ = wire.send(greeting);
                let _ = wire.tcp().shutdown(std::net::Shutdown::Write);
                let answer = wire.rest();
                assert!(!answer.starts_with(&[5, 0]) && !answer.starts_with(&[0, 0x5a]), "{answer:?}");
            }
        }
        assert_eq!(run.lab.upstream.connections(), 0);
        assert_eq!(
            run.tls(Way::Connect, "api.test").ask(get("api.test", "/v1/items/1")).answer().status,
            200
        );
    });
}

#[test]
fn d19_tls_before_1_2_and_sslv2_get_an_alert_and_a_record() {
    with_run(&["items"], |run| {
        for version in [[3, 1], [3, 2], [3, 0]] {
            let record = one_record(run, || {
                let mut wire = run.dial("api.test", 443).unwrap();
                wire.write_all(&old_hello(version)).unwrap();
                let answer = wire.rest();
                assert!(answer.is_empty() || answer[0] == 21, "an alert or nothing, not {answer:?}");
            });
            assert_eq!(record["kind"], "tls");
            assert_eq!(record["verdict"], "denied");
        }
        let mut wire = run.dial("api.test", 443).unwrap();
        wire.write_all(&[0x80, 0x1c, 1, 0, 2, 0, 3, 0, 0, 0, 16]).unwrap();
        let _ = wire.tcp().shutdown(std::net::Shutdown::Write);
        let answer = wire.rest();
        assert!(answer.is_empty() || answer[0] == 21);
    });
}

/// A ClientHello of an old version for `api.test`, with no newer one offered.
fn old_hello(version: [u8; 2]) -> Vec<u8> {
    let name = b"api.test";
    let mut extension = vec![0, 0];
    let length = u8::try_from(name.len()).unwrap();
    extension.extend_from_slice(&[0, length + 5, 0, length + 3, 0, 0, length]);
    extension.extend_from_slice(name);
    let mut body = version.to_vec();
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 4, 0xc0, 0x09, 0x00, 0x2f, 1, 0]);
    body.extend_from_slice(&u16::try_from(extension.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&extension);
    let mut handshake = vec![1, 0];
    handshake.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    handshake.extend_from_slice(&body);
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(&u16::try_from(handshake.len()).unwrap().to_be_bytes());
    record.extend_from_slice(&handshake);
    record
}

#[test]
fn a_fragmented_client_hello_is_read_whole() {
    with_run(&["items"], |run| {
        let address = run.resolve("api.test").unwrap();
        let mut stream = run.gate.connect((address, 443).into()).unwrap();
        let config = freeboard_tests::wire::client_config(&run.ca_pem, &[b"http/1.1"]);
        let name = rustls::pki_types::ServerName::try_from("api.test").unwrap();
        let mut connection = rustls::ClientConnection::new(config, name).unwrap();
        let mut hello = Vec::new();
        connection.write_tls(&mut hello).unwrap();
        for byte in &hello {
            stream.write_all(&[*byte]).unwrap();
        }
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).unwrap();
        }
    });
}

#[test]
fn d26_early_data_is_not_offered() {
    with_run(&["items"], |run| {
        let config = std::sync::Arc::new({
            let mut config = std::sync::Arc::unwrap_or_clone(freeboard_tests::wire::client_config(
                &run.ca_pem,
                &[b"http/1.1"],
            ));
            config.enable_early_data = true;
            config
        });
        for _ in 0..3 {
            let address = run.resolve("api.test").unwrap();
            let mut stream = run.gate.connect((address, 443).into()).unwrap();
            let name = rustls::pki_types::ServerName::try_from("api.test").unwrap();
            let mut connection = rustls::ClientConnection::new(std::sync::Arc::clone(&config), name).unwrap();
            assert!(connection.early_data().is_none(), "the broker's tickets allow early data");
            while connection.is_handshaking() {
                connection.complete_io(&mut stream).unwrap();
            }
            let mut wire = rustls::StreamOwned::new(connection, stream);
            wire.write_all(get("api.test", "/v1/items/1").as_bytes()).unwrap();
            assert_eq!(freeboard_tests::response::read(&mut wire, "GET").unwrap().status, 200);
        }
    });
}

#[test]
fn d21_d23_only_tls_that_we_end_passes_a_tunnel() {
    with_run(&["items", "pub"], |run| {
        // First bytes that are not TLS inside a granted tunnel.
        for first in [
            "SSH-2.0-x\r\n",
            "EHLO x\r\n",
            "GET / HTTP/1.1\r\nHost: pub.test\r\n\r\n",
            "\x13BitTorrent protocol",
        ] {
            let mut proxy = run.proxy();
            assert_eq!(
                proxy.ask("CONNECT pub.test:443 HTTP/1.1\r\nHost: pub.test:443\r\n\r\n").status(),
                Some(200)
            );
            let _ = proxy.send(first);
            let _ = proxy.tcp().shutdown(std::net::Shutdown::Write);
            let _ = proxy.rest();
        }
        assert_eq!(run.lab.upstream.connections(), 0, "no opaque relay");
        // A client that trusts only the real authority does not get one that it trusts.
        let real = run.lab.upstream.ca().pem().to_owned();
        assert!(Wire::start_tls(run.dial("pub.test", 443).unwrap(), "pub.test", &real, &[]).is_err());
        assert_eq!(run.lab.upstream.connections(), 0);
    });
}

#[test]
fn d36_leaves_are_for_asked_names_only_and_the_key_stays_with_the_broker() {
    with_run(&["items"], |run| {
        assert!(!run.ca_pem.contains("PRIVATE"));
        assert_eq!(run.ca_pem.matches("BEGIN CERTIFICATE").count(), 1);
        for way in WAYS {
            allowed(run, way, "api.test", get("api.test", "/v1/items/1"));
        }
    });
}

#[test]
fn a_run_without_grants_reaches_nothing_and_every_attempt_is_recorded() {
    with_run(&[], |run| {
        assert_eq!(one_record(run, || assert!(run.resolve("api.test").is_none()))["kind"], "dns");
        refused_on(
            run,
            &mut run.proxy(),
            "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n",
            &[403],
        );
        let record = one_record(run, || {
            if let Ok(mut wire) =
                run.dial("1.1.1.1", 443).unwrap().start_tls("api.test", &run.ca_pem, &[b"http/1.1"])
            {
                assert_eq!(wire.ask(get("api.test", "/v1/items/1")).answer().status, 403);
            }
        });
        assert_eq!(record["verdict"], "denied");
        assert_eq!(run.lab.upstream.connections(), 0);
    });
}

/// The gate is silent even to a program that may make packets itself.
#[test]
fn d06_icmp_gets_no_answer() {
    with_run(&["items"], |run| {
        let echo_request = [8_u8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
        for address in ["1.1.1.1", "10.77.0.1", "198.18.0.1", "127.0.0.1"] {
            let address: std::net::Ipv4Addr = address.parse().unwrap();
            let received = run.gate.enter(|| {
                use nix::sys::socket::{
                    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
                    setsockopt, socket, sockopt,
                };
                let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp)
                    .unwrap();
                setsockopt(&raw, sockopt::ReceiveTimeout, &nix::sys::time::TimeVal::new(0, 300_000)).unwrap();
                let to = SockaddrIn::from(std::net::SocketAddrV4::new(address, 0));
                let raw_fd = std::os::fd::AsRawFd::as_raw_fd(&raw);
                sendto(raw_fd, &echo_request, &to, MsgFlags::empty()).unwrap();
                let mut kinds = Vec::new();
                let mut buffer = [0; 128];
                // The request itself comes by, as the address is local; an answer would be of kind 0.
                while let Ok(length) = recv(raw_fd, &mut buffer, MsgFlags::empty()) {
                    assert!(length > 20);
                    kinds.push(buffer[20]);
                }
                kinds
            });
            assert!(received.contains(&8), "the socket hears: {received:?}");
            assert!(!received.contains(&0), "{address} answered");
        }
    });
}

#[test]
fn d13_one_run_does_not_reach_another() {
    let Some(lab) = Lab::start() else { return };
    let (one, other) = (lab.run(&["items"]), lab.run(&["items"]));
    let listener = one.gate.enter(|| std::net::TcpListener::bind("0.0.0.0:5555").unwrap());
    listener.set_nonblocking(true).unwrap();
    let datagrams = one.gate.enter(|| std::net::UdpSocket::bind("0.0.0.0:5556").unwrap());
    datagrams.set_nonblocking(true).unwrap();
    // Inside its own gate it is there.
    drop(one.gate.connect("127.0.0.1:5555".parse().unwrap()).unwrap());
    wait::until("a connection of the run's own", || listener.accept().ok());
    for address in ["10.9.9.9", "127.0.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255"] {
        let address: std::net::IpAddr = address.parse().unwrap();
        if let Ok(stream) = other.gate.connect((address, 5555).into()) {
            let mut wire = Wire::clear(stream);
            let _ = wire.send("hello");
            let _ = wire.rest();
        }
        if let Ok(socket) = other.gate.udp((address, 5556).into()) {
            let _ = socket.send(b"hello");
        }
    }
    assert!(listener.accept().is_err(), "another run has connected");
    assert!(datagrams.recv_from(&mut [0; 16]).is_err(), "another run has sent a datagram");
}

/// A program's own certificate is not asked for, so it cannot be mistaken for one that the broker presents.
#[test]
fn d24_the_broker_asks_for_no_client_certificate() {
    #[derive(Debug)]
    struct Asked(std::sync::atomic::AtomicBool);
    impl rustls::client::ResolvesClientCert for Asked {
        fn resolve(
            &self,
            _: &[&[u8]],
            _: &[rustls::SignatureScheme],
        ) -> Option<std::sync::Arc<rustls::sign::CertifiedKey>> {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
            None
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    with_run(&["items"], |run| {
        let asked = std::sync::Arc::new(Asked(std::sync::atomic::AtomicBool::new(false)));
        let plain = freeboard_tests::wire::client_config(&run.ca_pem, &[b"http/1.1"]);
        let mut config = std::sync::Arc::unwrap_or_clone(plain);
        let resolver = std::sync::Arc::clone(&asked);
        config.client_auth_cert_resolver = resolver;
        let address = run.resolve("api.test").unwrap();
        let stream = run.gate.connect((address, 443).into()).unwrap();
        let name = rustls::pki_types::ServerName::try_from("api.test").unwrap();
        let connection = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
        let mut wire = rustls::StreamOwned::new(connection, stream);
        wire.write_all(get("api.test", "/v1/items/1").as_bytes()).unwrap();
        assert_eq!(freeboard_tests::response::read(&mut wire, "GET").unwrap().status, 200);
        assert!(!asked.0.load(std::sync::atomic::Ordering::SeqCst), "a certificate was asked for");
    });
}

/// As large as browsers with post-quantum keys and many extensions make it, over several segments.
#[test]
fn h62_a_large_client_hello_is_read_whole() {
    with_run(&["items"], |run| {
        let names: Vec<Vec<u8>> =
            (0..120).map(|number| format!("protocol-{number:050}").into_bytes()).collect();
        let mut protocols: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        protocols.push(b"http/1.1");
        for way in WAYS {
            let mut wire = run.tls_with(way, "api.test", 443, "api.test", &protocols).unwrap();
            assert_eq!(wire.protocol().as_deref(), Some(&b"http/1.1"[..]));
            assert_eq!(wire.ask(get("api.test", "/v1/items/1")).status(), Some(200));
        }
    });
}

/// A name whose addresses change between two answers: every connection resolves once, checks what it got, and dials that.
#[test]
fn d08_a_name_that_is_bound_anew_is_dialled_at_a_checked_address_or_not_at_all() {
    let allowed_address = "10.77.0.3";
    let answers: [&[&str]; 6] = [
        &[allowed_address],
        &["127.0.0.1"],
        &["10.77.1.9"],
        &["169.254.169.254"],
        &[allowed_address, "10.77.1.9"],
        &["127.0.0.1", allowed_address],
    ];
    let script = answers.map(|set| set.iter().map(|address| address.parse().unwrap()).collect());
    let Some((lab, nameserver)) = Lab::start_with_nameserver(POLICY, "pub.test", script.to_vec()) else {
        return;
    };
    // Whoever listens at the other addresses would count.
    let trap = lab.world().enter(|| std::net::TcpListener::bind("127.0.0.1:443").unwrap());
    trap.set_nonblocking(true).unwrap();
    for (turn, set) in answers.iter().enumerate() {
        // A run of its own keeps no connection of the turn before.
        let run = lab.run(&["pub"]);
        let before = (lab.upstream.connections(), nameserver.asked());
        let response = run.tls(Way::Transparent, "pub.test").ask(get("pub.test", "/x")).answer();
        assert_eq!(nameserver.asked() - before.1, 1, "one resolution for one connection");
        if set.contains(&allowed_address) {
            // Another address beside it is left out.
            assert_eq!(response.status, 200, "{turn}: {response:?}");
            assert_eq!(lab.upstream.connections(), before.0 + 1);
        } else {
            assert_eq!(response.reason().as_deref(), Some("address_refused"), "{turn}: {response:?}");
            assert_eq!(lab.upstream.connections(), before.0);
        }
        run.close();
    }
    assert!(trap.accept().is_err(), "an address that was not checked was dialled");
}

/// The outer name counts, and no inner one is ever looked for: the hello is answered as one without the extension.
#[test]
fn d17_an_encrypted_client_hello_is_decided_by_its_outer_name() {
    use rustls::client::{EchGreaseConfig, EchMode};
    use rustls::crypto::hpke::Hpke as _;
    with_run(&["items"], |run| {
        let suite = rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_128;
        let (public, _) = suite.generate_key_pair().unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(
            <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::pem_slice_iter(
                run.ca_pem.as_bytes(),
            )
            .map(Result::unwrap),
        );
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mode = EchMode::Grease(EchGreaseConfig::new(suite, public));
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_ech(mode).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = std::sync::Arc::new(config);
        for (target, status) in [("/v1/items/1", 200), ("/v1/admin", 403)] {
            let address = run.resolve("api.test").unwrap();
            let stream = run.gate.connect((address, 443).into()).unwrap();
            let name = rustls::pki_types::ServerName::try_from("api.test").unwrap();
            let connection = rustls::ClientConnection::new(std::sync::Arc::clone(&config), name).unwrap();
            let mut wire = rustls::StreamOwned::new(connection, stream);
            wire.write_all(get("api.test", target).as_bytes()).unwrap();
            assert_eq!(freeboard_tests::response::read(&mut wire, "GET").unwrap().status, status);
            assert_eq!(wire.conn.ech_status(), rustls::client::EchStatus::Grease);
        }
    });
}

#[test]
fn e01_e03_slow_heads_and_silent_connections_end_at_their_deadline() {
    with_run(&["items"], |run| {
        let begun = std::time::Instant::now();
        let mut slow = run.tls(Way::Transparent, "api.test");
        slow.set_patience(Duration::from_secs(25));
        let mut tunnel = run.proxy();
        tunnel.set_patience(Duration::from_secs(25));
        let connect = "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n";
        assert_eq!(tunnel.ask(connect).status(), Some(200));
        let mut silent = run.dial("api.test", 443).unwrap();
        silent.set_patience(Duration::from_secs(25));
        // A byte now and then does not help; other requests are served meanwhile.
        slow.send("GET /v1/items/1 HTTP/1.1\r\n").unwrap();
        while begun.elapsed() < Duration::from_secs(12) {
            slow.send("X").unwrap();
            let asked = std::time::Instant::now();
            allowed(run, Way::Connect, "api.test", get("api.test", "/v1/items/1"));
            assert!(asked.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_secs(1));
        }
        let answer = slow.read_answer("GET").answer();
        assert_eq!((answer.status, answer.reason().as_deref()), (408, Some("client_timeout")));
        assert!(slow.is_closed() && tunnel.is_closed() && silent.is_closed());
        assert!(begun.elapsed() > Duration::from_secs(12) && begun.elapsed() < Duration::from_secs(22));
    });
}

/// One name that nobody answers for holds up neither its own request for long nor any other.
#[test]
fn e26_a_name_server_without_an_answer_ends_at_its_deadline() {
    let Some((lab, _nameserver)) = Lab::start_with_nameserver(POLICY, "pub.test", Vec::new()) else { return };
    let run = lab.run(&["pub", "items"]);
    let begun = std::time::Instant::now();
    let mut waiting: Vec<Wire> = (0..8).map(|_| run.tls(Way::Transparent, "pub.test")).collect();
    for wire in &mut waiting {
        wire.send(get("pub.test", "/x")).unwrap();
    }
    allowed(&run, Way::Transparent, "api.test", get("api.test", "/v1/items/1"));
    assert!(begun.elapsed() < Duration::from_secs(4), "another name waited {:?}", begun.elapsed());
    for wire in &mut waiting {
        wire.set_patience(Duration::from_secs(15));
        let answer = wire.read_answer("GET").answer();
        assert_eq!(answer.reason().as_deref(), Some("upstream_unresolved"), "{answer:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
}
