//! P4, P5: the credential is at its upstream exactly once, and nowhere that a guest can read. Attack class C.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::Write as _;

use freeboard_policy::{Code, Policy, SourceFile};
use freeboard_tests::answer::Answer;
use freeboard_tests::broker::program;
use freeboard_tests::ca::Flaw;
use freeboard_tests::canary::Canary;
use freeboard_tests::expect::{allowed, allowed_on, bare, get, refused, with_body};
use freeboard_tests::lab::{C1, C2, C3, C4, C5, Lab, POLICY, Run, WAYS, Way};

fn on_every_door(grants: &[&str], body: impl Fn(&Run<'_>, Way)) {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(grants);
    for way in WAYS {
        body(&run, way);
    }
}

#[test]
fn each_kind_of_credential_arrives_once_and_only_at_its_host() {
    on_every_door(&["items", "echo", "pub", "git", "reg", "query"], |run, way| {
        let (_, api) = allowed(run, way, "api.test", get("api.test", "/v1/items/1"));
        assert_eq!(api.all("authorization"), [format!("Bearer {C1}")]);
        let (_, git) =
            allowed(run, way, "git.test", get("git.test", "/org/repo.git/info/refs?service=git-upload-pack"));
        let basic = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("robot:{C3}"));
        assert_eq!(git.all("authorization"), [format!("Basic {basic}")]);
        let (_, reg) = allowed(run, way, "reg.test", get("reg.test", "/v2/x"));
        assert_eq!((reg.all("x-api-key"), reg.field("authorization")), (vec![C4], None));
        let (_, query) = allowed(run, way, "aws.test", get("aws.test", "/a?b=1"));
        assert!(query.target.contains(&format!("key={C5}")), "{}", query.target);
        let (_, plain) = allowed(run, way, "pub.test", get("pub.test", "/x"));
        assert_eq!((plain.field("authorization"), plain.field("x-api-key")), (None, None));
        let (_, cdn) = allowed(run, way, "cdn.test", get("cdn.test", "/x"));
        assert_eq!((cdn.field("authorization"), cdn.field("x-api-key")), (None, None));
        // Positive control of every "not found" below: the recorder's bytes hold the secret.
        assert!(Canary::new(C1).found_in(&api.head).is_some());
    });
}

#[test]
fn c01_c03_c05_c07_a_reflected_secret_is_scrubbed_in_every_known_form() {
    on_every_door(&["echo"], |run, way| {
        for path in [
            "/headers",
            "/base64",
            "/base64-whole",
            "/percent",
            "/hex",
            "/hex-upper",
            "/location",
            "/cookie",
            "/debug",
            "/phrase",
            "/trailer",
            "/split",
        ] {
            for fields in [&[][..], &["Accept-Encoding: gzip, br, zstd, deflate"]] {
                let mut wire = run.tls(way, "echo.test");
                let reply = wire.ask(bare("GET", "echo.test", path, fields));
                let mut seen = Vec::new();
                if let freeboard_tests::wire::Reply::Answer(response) = reply {
                    seen.extend_from_slice(&response.head);
                    seen.extend_from_slice(&response.body);
                    for (name, value) in &response.trailers {
                        seen.extend_from_slice(format!("{name}: {value}").as_bytes());
                    }
                }
                let recorded = run.lab.upstream.take();
                assert!(
                    recorded.iter().any(|request| Canary::new(C2).found_in(&request.head).is_some()),
                    "{path}: it was sent"
                );
                run.lab.assert_no_secret(&format!("the answer of {path}"), &seen);
            }
        }
    });
}

#[test]
fn c03_accept_encoding_is_limited_to_what_can_be_read() {
    on_every_door(&["echo"], |run, way| {
        for value in ["gzip", "br", "zstd", "deflate", "gzip, gzip", "compress", "*", "x-unknown"] {
            let (_, recorded) = allowed(
                run,
                way,
                "echo.test",
                bare("GET", "echo.test", "/headers", &[&format!("Accept-Encoding: {value}")]),
            );
            let sent = recorded.field("accept-encoding").unwrap_or_default().to_owned();
            assert!(
                !sent.contains("compress") && !sent.contains("x-unknown") && !sent.contains('*'),
                "{sent}"
            );
        }
    });
}

#[test]
fn c03_e11_an_encoding_that_cannot_be_read_is_not_passed_as_scrubbed() {
    let Some(lab) = Lab::start() else { return };
    for encoding in ["compress", "x-unknown", "gzip, gzip", "aes128gcm"] {
        let name = encoding.replace([',', ' '], "-");
        lab.upstream.on("echo.test", &format!("/{name}"), move |request| {
            Answer::new(
                200,
                &[&format!("Content-Encoding: {encoding}")],
                request.field("authorization").unwrap_or_default(),
            )
        });
    }
    // Says gzip, is not.
    lab.upstream.on("echo.test", "/lie", |request| {
        Answer::new(200, &["Content-Encoding: gzip"], request.field("authorization").unwrap_or_default())
    });
    let run = lab.run(&["echo"]);
    for way in WAYS {
        for path in ["/compress", "/x-unknown", "/gzip--gzip", "/aes128gcm", "/lie"] {
            let mut wire = run.tls(way, "echo.test");
            let _ = wire.send(get("echo.test", path));
            lab.assert_no_secret(path, &wire.bytes_of_answer("GET"));
        }
    }
}

#[test]
fn c09_the_guests_own_authorization_never_arrives_on_a_credentialed_api() {
    on_every_door(&["items", "reg"], |run, way| {
        for fields in [
            &["Authorization: Bearer mine"][..],
            &["authorization: Bearer mine", "AUTHORIZATION: Bearer mine2"],
            &["Authorization: Basic bWluZTptaW5l", "X-Api-Key: mine"],
        ] {
            let (_, recorded) = allowed(run, way, "api.test", bare("GET", "api.test", "/v1/items/1", fields));
            assert_eq!(recorded.all("authorization"), [format!("Bearer {C1}")]);
            let (_, recorded) = allowed(run, way, "reg.test", bare("GET", "reg.test", "/v2/x", fields));
            assert_eq!(recorded.all("x-api-key"), [C4]);
        }
        refused(run, way, "api.test", bare("GET", "api.test", "/v1/items/1", &["Authorization : x"]), &[400]);
        let last = run.decisions(1);
        assert!(
            last.iter().any(|record| record["stripped"].to_string().contains("authorization")),
            "{last:#?}"
        );
    });
}

#[test]
fn c14_c15_redirects_are_handed_back_and_judged_anew() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream
        .on("api.test", "/v1/items/away", |_| Answer::new(302, &["Location: https://evil.test/"], ""));
    lab.upstream
        .on("reg.test", "/v2/blob", |_| Answer::new(307, &["Location: https://cdn.test/signed?x=1"], ""));
    let run = lab.run(&["items", "reg"]);
    for way in WAYS {
        let (response, _) = allowed(&run, way, "api.test", get("api.test", "/v1/items/away"));
        assert_eq!((response.status, response.field("location")), (302, Some("https://evil.test/")));
        assert!(run.resolve("evil.test").is_none());
        for method in ["GET", "HEAD"] {
            let (response, _) = allowed(&run, way, "reg.test", bare(method, "reg.test", "/v2/blob", &[]));
            assert_eq!(
                (response.status, response.field("location")),
                (307, Some("https://cdn.test/signed?x=1"))
            );
            let (_, recorded) = allowed(&run, way, "cdn.test", bare(method, "cdn.test", "/signed?x=1", &[]));
            assert_eq!((recorded.field("x-api-key"), recorded.field("authorization")), (None, None));
        }
    }
}

#[test]
fn c17_trace_and_track_are_refused_whatever_is_granted() {
    on_every_door(&["echo"], |run, way| {
        for method in ["TRACE", "TRACK", "CONNECT"] {
            refused(run, way, "echo.test", bare(method, "echo.test", "/headers", &[]), &[400, 403, 405]);
        }
    });
}

#[test]
fn c18_failures_tell_a_reason_and_an_id_and_nothing_else() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.on("api.test", "/v1/items/reset", |_| Answer::raw("HTTP/1.1 200").resetting());
    lab.upstream.on("api.test", "/v1/items/huge", |_| {
        Answer::raw(format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(1 << 20)))
    });
    let run = lab.run(&["items"]);
    for way in WAYS {
        for path in ["/v1/items/reset", "/v1/items/huge"] {
            if let freeboard_tests::wire::Reply::Answer(response) =
                run.tls(way, "api.test").ask(get("api.test", path))
            {
                assert_eq!(response.status, 502, "{path}: {response:?}");
                let seen = [response.head.clone(), response.body.clone()].concat();
                let text = String::from_utf8_lossy(&seen).into_owned();
                for private in [
                    "10.77.0",
                    "/tmp",
                    lab.folder().to_str().unwrap(),
                    "uthorization",
                    "Bearer",
                    "rustls",
                    ".rs",
                ] {
                    assert!(!text.contains(private), "{path} tells `{private}`: {text}");
                }
                assert!(response.reason().is_some() && response.text().contains("request"), "{text}");
                lab.assert_no_secret(path, &seen);
            }
        }
    }
}

#[test]
fn c28_a_flawed_certificate_gets_no_request() {
    for flaw in [Flaw::Expired, Flaw::NotYetValid, Flaw::WrongName, Flaw::SelfSigned, Flaw::UnknownAuthority]
    {
        let Some(lab) = Lab::start() else { return };
        lab.upstream.flaw("api.test", flaw);
        let run = lab.run(&["items"]);
        for way in WAYS {
            let response = run.tls(way, "api.test").ask(get("api.test", "/v1/items/1")).answer();
            assert_eq!(response.status, 502, "{flaw:?}");
            assert_eq!(lab.upstream.bytes(), 0, "{flaw:?}: no request head before the name is proved");
        }
        lab.upstream.flaw("api.test", Flaw::None);
        assert_eq!(
            run.tls(Way::Connect, "api.test").ask(get("api.test", "/v1/items/1")).answer().status,
            200
        );
    }
}

#[test]
fn c12_g24_a_credential_that_cannot_be_read_fails_closed() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["reg", "pub"]);
    std::fs::remove_file(lab.folder().join("secrets/c4")).unwrap();
    for (pair, way) in WAYS.into_iter().enumerate() {
        let before = lab.upstream.bytes();
        let response = run.tls(way, "reg.test").ask(get("reg.test", "/v2/x")).answer();
        assert_eq!((response.status, response.reason().as_deref()), (503, Some("credential_unavailable")));
        assert_eq!(lab.upstream.bytes(), before);
        assert_eq!(run.decisions(2 * pair + 1)[2 * pair]["reason"], "credential_unavailable");
        allowed(&run, way, "pub.test", get("pub.test", "/x"));
    }
}

#[test]
fn c22_c24_tokens_and_challenges_of_an_upstream_are_handed_on_without_a_retry() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.on("api.test", "/v1/items/401", |_| {
        Answer::new(401, &["WWW-Authenticate: Bearer error=\"invalid_token\""], "")
    });
    let run = lab.run(&["items"]);
    for way in WAYS {
        let (response, _) = allowed(&run, way, "api.test", get("api.test", "/v1/items/401"));
        assert_eq!((response.status, response.all("www-authenticate").len()), (401, 1));
    }
}

#[test]
fn c33_the_control_plane_is_out_of_reach() {
    on_every_door(&["items"], |run, way| {
        if way == Way::Transparent {
            for port in [8746, 8747, 9464, 3129] {
                if let Ok(mut wire) = run.dial("127.0.0.1", port) {
                    assert!(wire.ask(get("127.0.0.1", "/metrics")).status().is_none());
                }
            }
        }
        for target in [
            "http://127.0.0.1:9464/metrics",
            "http://localhost/",
            "http://broker.test:3128/",
            "http://[::1]/",
            "http://10.77.0.1/ca.crt",
        ] {
            let host = target.trim_start_matches("http://").split('/').next().unwrap();
            let reply = run.proxy().ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).answer();
            assert!([400, 403].contains(&reply.status), "{target}: {reply:?}");
        }
    });
}

#[test]
fn c36_a_query_credential_is_scrubbed_from_where_urls_come_back() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.on("aws.test", "/loc", |request| {
        let target = request.target.clone();
        Answer::new(
            302,
            &[
                &format!("Location: {target}"),
                &format!("Content-Location: https://aws.test{target}"),
                &format!("Link: <{target}>; rel=next"),
            ],
            format!("<a href=\"{target}\">"),
        )
    });
    let run = lab.run(&["query"]);
    for (pair, way) in WAYS.into_iter().enumerate() {
        let (response, recorded) = allowed(&run, way, "aws.test", get("aws.test", "/loc?a=1"));
        assert!(Canary::new(C5).found_in(&recorded.head).is_some());
        assert_eq!(response.status, 302);
        // The guest cannot name the parameter itself.
        let reply = run.tls(way, "aws.test").ask(get("aws.test", "/loc?key=mine")).answer();
        let sent = lab.upstream.take();
        assert!(sent.iter().all(|request| !request.target.contains("mine")), "{sent:?} {reply:?}");
        assert_eq!(run.decisions(2 * pair + 2)[2 * pair + 1]["reason"], "query_not_granted");
    }
}

#[test]
fn c20_the_log_and_the_brokers_output_hold_no_secret_also_of_the_query() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["query", "items", "pub"]);
    for way in WAYS {
        allowed(&run, way, "aws.test", get("aws.test", "/a?b=1"));
        allowed(&run, way, "pub.test", get("pub.test", "/x?token=guests-own-secret-value&a=1"));
    }
    let text = lab.audit.text();
    assert!(text.contains("/x?"), "{text}");
    assert!(
        !text.contains("guests-own-secret-value"),
        "values of parameters that look like secrets are replaced"
    );
    // The scan of log and output for C1..C5 is in the lab's drop.
}

#[test]
fn c21_the_brokers_secrets_are_in_no_environment_or_command_line() {
    let Some(lab) = Lab::start() else { return };
    let _run = lab.run(&["items"]);
    for file in ["environ", "cmdline"] {
        let bytes = std::fs::read(format!("/proc/{}/{file}", lab.broker.pid())).unwrap();
        lab.assert_no_secret(file, &bytes);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", lab.broker.pid())).unwrap();
    if nix::unistd::geteuid().is_root() {
        assert!(status.contains("CapEff:\t0000000000000000"), "the broker needs no capability:\n{status}");
    }
}

#[test]
fn set_cookie_and_alt_svc_are_dropped_on_credentialed_apis() {
    let Some(lab) = Lab::start() else { return };
    for (host, path) in [("api.test", "/v1/items/c"), ("pub.test", "/c")] {
        lab.upstream.on(host, path, |_| {
            Answer::new(200, &["Set-Cookie: a=b", "Alt-Svc: h3=\":443\"", "X-Kept: 1"], "")
        });
    }
    let run = lab.run(&["items", "pub"]);
    for way in WAYS {
        let (response, _) = allowed(&run, way, "api.test", get("api.test", "/v1/items/c"));
        assert_eq!((response.field("set-cookie"), response.field("alt-svc")), (None, None));
        assert_eq!(response.field("x-kept"), Some("1"));
        let (response, _) = allowed(&run, way, "pub.test", get("pub.test", "/c"));
        assert_eq!(response.field("alt-svc"), None, "D03: there is no other way to the host");
    }
}

#[test]
fn a_split_write_of_a_request_is_read_as_one() {
    on_every_door(&["items"], |run, way| {
        let mut wire = run.tls(way, "api.test");
        let request = with_body("POST", "api.test", "/v1/items", &["X-A: b"], "hello");
        let (last, rest) = request.as_bytes().split_last().unwrap();
        for byte in rest {
            wire.write_all(&[*byte]).unwrap();
        }
        let (_, recorded) = allowed_on(run, &mut wire, [*last]);
        assert_eq!(recorded.body, b"hello");
    });
}

/// There are no placeholders: what looks like one is data, wherever it stands and whatever host it is sent to.
#[test]
fn c10_c11_h28_h51_nothing_that_a_program_sends_is_replaced_by_a_secret() {
    on_every_door(&["items", "echo", "pub"], |run, way| {
        for placeholder in ["c1", "{{c1}}", "${c1}", "%c1%", "freeboard:c1", "xoxb-c1", "canary"] {
            let fields = [
                format!("X-Debug: {placeholder}"),
                format!("User-Agent: {placeholder}"),
                format!("Authorization: Bearer {placeholder}"),
            ];
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let body = format!("{{\"key\":\"{placeholder}\"}}");
            for (host, target, credential) in [
                ("pub.test", "/x", None),
                ("echo.test", "/headers", Some(C2)),
                ("api.test", "/v1/items", Some(C1)),
            ] {
                let request = with_body("POST", host, target, &fields, &body);
                let (response, recorded) = allowed(run, way, host, request);
                assert_eq!(response.status, 200, "{response:?}");
                assert_eq!(recorded.field("x-debug"), Some(placeholder));
                assert_eq!(recorded.field("user-agent"), Some(placeholder));
                assert_eq!(recorded.body, body.as_bytes());
                // On a credentialed API the program's own is taken off, so a made-up key never gets in the way.
                let kept = credential.unwrap_or(placeholder);
                assert_eq!(
                    recorded.field("authorization"),
                    Some(format!("Bearer {kept}").as_str()),
                    "{host}"
                );
                for other in [C1, C2, C3, C4, C5].into_iter().filter(|secret| Some(*secret) != credential) {
                    Canary::new(other).assert_absent("another API's request", &recorded.head);
                }
            }
        }
    });
}

/// No route with a credential can be let through unseen: the language has no word for it, and a tunnel carries nothing but TLS
/// that the broker ends.
#[test]
fn c30_a_credentialed_host_cannot_be_passed_through() {
    for (word, code) in [
        ("tls = \"passthrough\"", Code::BadConnection),
        ("inspect = false", Code::UnknownField),
        ("passthrough = true", Code::UnknownField),
    ] {
        let text = POLICY.replace("[api.api]\n", &format!("[api.api]\n{word}\n"));
        let problems = Policy::load(&[SourceFile::new("lab.toml", text)]).unwrap_err();
        assert!(problems.iter().any(|problem| problem.code == code), "{problems:?}");
    }
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    for first in ["GET /v1/admin HTTP/1.1\r\nHost: api.test\r\n\r\n", "SSH-2.0-x\r\n"] {
        let mut proxy = run.proxy();
        let connect = "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n";
        assert_eq!(proxy.ask(connect).status(), Some(200));
        let _ = proxy.send(first);
        let _ = proxy.tcp().shutdown(std::net::Shutdown::Write);
        lab.assert_no_secret("a tunnel without TLS", &proxy.rest());
    }
    assert_eq!(lab.upstream.connections(), 0);
}

#[test]
fn c35_no_command_shows_a_part_of_a_secret() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    allowed(&run, Way::Connect, "api.test", get("api.test", "/v1/items/1"));
    run.decisions(1);
    let config = lab.broker.config_file();
    let config = config.to_str().unwrap();
    let policy = lab.folder().join("policy");
    let policy = policy.to_str().unwrap();
    let explain = ["policy", "explain", policy, "GET", "https://api.test/v1/items/1", "--caller", "lab"];
    let commands: [&[&str]; 7] = [
        &["grants", "list", "--config", config],
        &["doctor", "--config", config],
        &["serve", "--print-config", "--config", config],
        &["policy", "check", policy],
        &explain,
        &["audit", "tail", "--config", config],
        &["audit", "verify", "--config", config],
    ];
    for words in commands {
        let output = std::process::Command::new(program("freeboard")).args(words).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.is_empty(), "{words:?} says nothing");
        let said = String::from_utf8_lossy(&said);
        for secret in [C1, C2, C3, C4, C5] {
            let random = secret.rsplit('-').next().unwrap();
            for start in 0..=random.len() - 6 {
                let part = &random[start..start + 6];
                assert!(!said.contains(part), "`{part}` of a secret is shown by {words:?}: {said}");
            }
        }
    }
}

/// Large files of git: the answer of a credentialed API names another host and the header for it, which belongs to the program.
#[test]
fn h42_a_header_for_another_host_is_kept_there_and_no_secret_is_added() {
    on_every_door(&["reg"], |run, way| {
        run.lab.upstream.on("reg.test", "/v2/batch", |_| {
            Answer::json(&serde_json::json!({"href": "https://cdn.test/o/1", "header": {"Authorization": "RemoteAuth lfs"}}))
        });
        let (answer, recorded) = allowed(run, way, "reg.test", get("reg.test", "/v2/batch"));
        assert_eq!(recorded.field("x-api-key"), Some(C4));
        let header = answer.json()["header"]["Authorization"].as_str().unwrap().to_owned();
        let fields = [format!("Authorization: {header}")];
        let (_, recorded) =
            allowed(run, way, "cdn.test", bare("GET", "cdn.test", "/o/1?sig=x", &[&fields[0]]));
        assert_eq!(recorded.field("authorization"), Some("RemoteAuth lfs"));
        assert_eq!((recorded.field("x-api-key"), recorded.target.as_str()), (None, "/o/1?sig=x"));
    });
}
