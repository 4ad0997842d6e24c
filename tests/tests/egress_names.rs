//! P2, P5: names. CONNECT, server name, Host and certificate are one name, in one form. Attack class A, on every door.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use freeboard_tests::dns;
use freeboard_tests::expect::{allowed, allowed_on, get, refused, refused_on};
use freeboard_tests::lab::{Lab, RESOLVER, Run, WAYS, Way};

fn with_run(grants: &[&str], body: impl Fn(&Run<'_>)) {
    let Some(lab) = Lab::start() else { return };
    body(&lab.run(grants));
}

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

/// CONNECT to each authority is refused with one of `statuses`.
fn refuses_connect(run: &Run<'_>, authorities: &[&str], statuses: &[u16]) {
    for authority in authorities {
        refused_on(run, &mut run.proxy(), connect(authority), statuses);
    }
}

#[test]
fn a19_absolute_form_must_agree_with_host() {
    with_run(&["items", "pub"], |run| {
        refused_on(
            run,
            &mut run.proxy(),
            "GET http://pub.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
            &[400, 421],
        );
        refused_on(
            run,
            &mut run.proxy(),
            "GET https://pub.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
            &[400, 421],
        );
        for way in WAYS {
            // Inside a tunnel an absolute target must agree as well.
            refused(
                run,
                way,
                "pub.test",
                "GET https://api.test/v1/items/1 HTTP/1.1\r\nHost: pub.test\r\n\r\n",
                &[400, 421],
            );
            refused(
                run,
                way,
                "pub.test",
                "GET https://api.test/v1/items/1 HTTP/1.1\r\nHost: api.test\r\n\r\n",
                &[400, 421],
            );
        }
    });
}

#[test]
fn a21_userinfo_is_refused() {
    with_run(&["items"], |run| {
        refuses_connect(
            run,
            &["api.test:443@evil.test:443", "x@api.test:443", "api.test@evil.test:443"],
            &[400],
        );
        refused_on(
            run,
            &mut run.proxy(),
            "GET http://api.test@evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            &[400],
        );
        for way in WAYS {
            for host in
                ["api.test@evil.test", "x@api.test", "api.test/v1", "api.test?x", "api.test#x", "api.test\\x"]
            {
                refused(run, way, "api.test", get(host, "/v1/items/1"), &[400]);
            }
        }
    });
}

#[test]
fn a22_several_host_fields_are_refused() {
    with_run(&["items"], |run| {
        for way in WAYS {
            for fields in [
                "Host: api.test\r\nHost: evil.test",
                "Host: evil.test\r\nHost: api.test",
                "Host: api.test\r\nHost: api.test",
                "Host: api.test, evil.test",
                "host :api.test",
                "Host: api.test\r\nhost:api.test",
            ] {
                refused(
                    run,
                    way,
                    "api.test",
                    format!("GET /v1/items/1 HTTP/1.1\r\n{fields}\r\n\r\n"),
                    &[400],
                );
            }
        }
    });
}

#[test]
fn a23_a_missing_or_empty_host_is_refused() {
    with_run(&["items"], |run| {
        for way in WAYS {
            for request in [
                "GET /v1/items/1 HTTP/1.1\r\n\r\n",
                "GET /v1/items/1 HTTP/1.1\r\nHost:\r\n\r\n",
                "GET /v1/items/1 HTTP/1.1\r\nHost: \r\n\r\n",
                "GET /v1/items/1 HTTP/1.0\r\n\r\n",
            ] {
                refused(run, way, "api.test", request, &[400, 505]);
            }
        }
    });
}

#[test]
fn a24_connect_server_name_and_host_must_be_one_name() {
    with_run(&["items", "pub"], |run| {
        let other_host = get("api.test", "/v1/items/1");
        // CONNECT pub, server name api: refused in the handshake or after it, before any upstream byte.
        let bytes = run.lab.upstream.bytes();
        if let Ok(mut wire) = run.tls_with(Way::Connect, "pub.test", 443, "api.test", &[b"http/1.1"]) {
            refused_on(run, &mut wire, &other_host, &[400, 403, 421]);
        }
        if let Ok(mut wire) = run.tls_with(Way::Transparent, "pub.test", 443, "api.test", &[b"http/1.1"]) {
            refused_on(run, &mut wire, &other_host, &[400, 403, 421]);
        }
        assert_eq!(run.lab.upstream.bytes(), bytes);
        for way in WAYS {
            // Server name pub, Host api.
            refused(run, way, "pub.test", &other_host, &[421]);
            refused(run, way, "api.test", get("pub.test", "/x"), &[421]);
        }
        assert!(run.decisions(4).iter().all(|record| record["credential"].is_null()));
    });
}

#[test]
fn a30_connect_inside_a_tunnel_is_refused() {
    with_run(&["pub", "echo"], |run| {
        for way in WAYS {
            for authority in ["evil.test:443", "pub.test:443", "api.test:443"] {
                refused(run, way, "pub.test", connect(authority), &[400, 403, 405, 421]);
                refused(
                    run,
                    way,
                    "pub.test",
                    format!("CONNECT {authority} HTTP/1.1\r\nHost: pub.test\r\n\r\n"),
                    &[400, 403, 405, 421],
                );
            }
            refused(
                run,
                way,
                "echo.test",
                "CONNECT echo.test:443 HTTP/1.1\r\nHost: echo.test\r\n\r\n",
                &[400, 403, 405],
            );
        }
    });
}

#[test]
fn a31_upgrades_to_h2c_are_never_a_raw_relay() {
    with_run(&["pub"], |run| {
        let fields =
            "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__";
        for way in WAYS {
            let before = run.lab.upstream.requests().len();
            let records = run.lab.audit.decisions(&run.id).len();
            let reply =
                run.tls(way, "pub.test").ask(format!("GET / HTTP/1.1\r\nHost: pub.test\r\n{fields}\r\n\r\n"));
            run.decisions(records + 1);
            match &run.lab.upstream.requests()[before..] {
                [] => assert!(reply.status().is_none_or(|status| [400, 403].contains(&status)), "{reply:?}"),
                [one] => {
                    assert!(
                        one.field("upgrade").is_none() && one.field("http2-settings").is_none(),
                        "{one:?}"
                    );
                    assert_eq!(reply.status(), Some(200));
                }
                more => panic!("{more:?}"),
            }
        }
        refused_on(
            run,
            &mut run.proxy(),
            format!("GET http://pub.test/ HTTP/1.1\r\nHost: pub.test\r\n{fields}\r\n\r\n"),
            &[400, 403],
        );
        // Prior knowledge: the HTTP/2 preface in the clear.
        let bytes = run.lab.upstream.bytes();
        for port in [80, 3128] {
            let mut wire = if port == 80 { run.dial("pub.test", 80).unwrap() } else { run.proxy() };
            let reply = wire.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
            assert!(reply.status().is_none_or(|status| (400..600).contains(&status)), "{reply:?}");
        }
        assert_eq!(run.lab.upstream.bytes(), bytes);
    });
}

#[test]
fn a33_trailing_dot_and_letter_case_of_the_host_change_nothing() {
    with_run(&["items"], |run| {
        for way in WAYS {
            for host in ["api.test.", "API.TesT", "Api.Test.", "api.test:443", "API.TEST.:443"] {
                let (_, recorded) = allowed(run, way, "api.test", get(host, "/v1/items/1"));
                assert_eq!(recorded.all("host"), ["api.test"]);
                assert_eq!(recorded.server_name, "api.test");
            }
        }
        let mut proxy = run.proxy();
        assert_eq!(proxy.ask(connect("API.TesT.:443")).status(), Some(200));
        let mut wire = proxy.start_tls("api.test", &run.ca_pem, &[]).unwrap();
        allowed_on(run, &mut wire, get("api.test", "/v1/items/1"));
        refuses_connect(run, &["evil.test.:443", "EVIL.test:443", "evil.TEST.:443"], &[403]);
        assert!(run.resolve("API.test.").is_some());
        assert!(run.resolve("EVIL.test.").is_none());
    });
}

#[test]
fn a34_brackets_around_names_are_refused() {
    with_run(&["items"], |run| {
        refuses_connect(run, &["[api.test]:443", "[[evil.test]]:443", "[]:443", "[api.test:443"], &[400]);
        for way in WAYS {
            refused(run, way, "api.test", get("[api.test]", "/v1/items/1"), &[400]);
        }
    });
}

#[test]
fn a35_ports_are_exact_and_never_cut() {
    with_run(&["items"], |run| {
        refuses_connect(run, &["api.test:8443", "api.test:80", "api.test:22"], &[403]);
        let bad = [
            "api.test:65979",
            "api.test:0",
            "api.test:+443",
            "api.test:0443",
            "api.test",
            "api.test:",
            "api.test:4 43",
            "api.test:443:443",
            "api.test:0x1bb",
            "api.test:-1",
            ":443",
        ];
        refuses_connect(run, &bad, &[400]);
        for way in WAYS {
            for host in ["api.test:8443", "api.test:80"] {
                refused(run, way, "api.test", get(host, "/v1/items/1"), &[400, 403, 421]);
            }
            for host in ["api.test:65979", "api.test:+443", "api.test:0443", "api.test:0"] {
                refused(run, way, "api.test", get(host, "/v1/items/1"), &[400, 421]);
            }
        }
    });
}

#[test]
fn a36_only_ascii_names_are_taken() {
    with_run(&["items"], |run| {
        let wide = "\u{ff41}\u{ff50}\u{ff49}.test:443";
        refuses_connect(
            run,
            &[wide, "xn--api-.test:443", "xn--.test:443", "\u{430}pi.test:443", "xn--pi-7kc.test:443"],
            &[400, 403],
        );
        for way in WAYS {
            refused(run, way, "api.test", get("\u{ff41}pi.test", "/v1/items/1"), &[400, 421]);
        }
    });
}

#[test]
fn a38_odd_spellings_of_ipv4_are_never_names() {
    with_run(&["items", "pub"], |run| {
        let spellings = [
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "010.0.0.1",
            "127.0.0.1.",
            "0x7f000001",
            "1.1.1",
            "10.77.0.3",
        ];
        for spelling in spellings {
            refused_on(run, &mut run.proxy(), connect(&format!("{spelling}:443")), &[400, 403]);
            refused_on(
                run,
                &mut run.proxy(),
                format!("GET http://{spelling}/ HTTP/1.1\r\nHost: {spelling}\r\n\r\n"),
                &[400, 403],
            );
            for way in WAYS {
                refused(run, way, "pub.test", get(spelling, "/"), &[400, 403, 421]);
            }
        }
    });
}

#[test]
fn a39_ipv6_forms_that_carry_ipv4_are_refused() {
    with_run(&["items", "pub"], |run| {
        for address in [
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "[2001:0:a9fe:a9fe::]",
            "[::]",
            "[::1]",
            "[fe80::1%25eth0]",
            "[fe80::1%eth0]",
            "[::ffff:10.77.0.3]",
        ] {
            refused_on(run, &mut run.proxy(), connect(&format!("{address}:443")), &[400, 403]);
            refused_on(
                run,
                &mut run.proxy(),
                format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n"),
                &[400, 403],
            );
        }
    });
}

#[test]
fn a47_absolute_form_is_judged_like_connect() {
    with_run(&["items", "pub"], |run| {
        for target in [
            "/v1/items/../admin",
            "/v1/items/%2e%2e/admin",
            "/v1/items\\..\\admin",
            "//v1/items/1",
            "/v1/items/1/secret",
            "/V1/ITEMS/1",
            "/v1/items/1;x",
            "/v1/admin#/v1/items/1",
            "/v1/items/x%00",
        ] {
            for scheme in ["https", "http"] {
                let request = format!("GET {scheme}://api.test{target} HTTP/1.1\r\nHost: api.test\r\n\r\n");
                refused_on(run, &mut run.proxy(), request, &[400, 403]);
            }
        }
        // Absolute-form https on the proxy door is the `wasm` worker's way; a guest may use it too: same pipeline.
        let reply =
            run.proxy().ask("GET https://api.test/v1/items/1 HTTP/1.1\r\nHost: api.test\r\n\r\n").answer();
        assert!([200, 400, 403].contains(&reply.status), "{reply:?}");
    });
}

#[test]
fn a51_a_host_wildcard_is_one_label_and_wide_ones_do_not_load() {
    with_run(&["items"], |run| {
        refuses_connect(
            run,
            &["a.api.test:443", "xapi.test:443", "*.api.test:443", "test:443", "api.test.evil.test:443"],
            &[400, 403],
        );
        for name in ["a.api.test", "xapi.test", "*.api.test", "test"] {
            assert!(run.resolve(name).is_none(), "{name}");
        }
    });
}

#[test]
fn c29_clear_text_is_refused_and_never_gets_a_credential() {
    with_run(&["items", "pub"], |run| {
        for host in ["api.test", "pub.test"] {
            let path = if host == "api.test" { "/v1/items/1" } else { "/x" };
            refused_on(run, &mut run.dial(host, 80).unwrap(), get(host, path), &[403]);
            refused_on(
                run,
                &mut run.proxy(),
                format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                &[403],
            );
        }
        assert!(run.decisions(4).iter().all(|record| record["credential"].is_null()));
    });
}

#[test]
fn names_outside_the_grants_do_not_resolve_and_say_why() {
    with_run(&["items"], |run| {
        let refusal = dns::ask_udp(&run.gate, RESOLVER, "evil.test", dns::A).unwrap();
        assert_eq!((refusal.code, refusal.extended_error, refusal.records), (dns::REFUSED, Some(17), 0));
        let granted = dns::ask_udp(&run.gate, RESOLVER, "api.test", dns::A).unwrap();
        assert_eq!((granted.code, granted.addresses.len()), (dns::NO_ERROR, 1));
    });
}
