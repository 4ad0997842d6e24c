//! P2, P3: paths. A target with two readings is refused; what is matched is what is sent. Attack class A, on every door.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use freeboard_tests::expect::{allowed, bare, get, refused, with_body};
use freeboard_tests::lab::{Lab, Run, WAYS, Way};

/// Runs `body` on every door with one lab.
fn on_every_door(grants: &[&str], body: impl Fn(&Run<'_>, Way)) {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(grants);
    for way in WAYS {
        body(&run, way);
    }
}

/// Every target is refused with one of `statuses`.
fn refuses(targets: &[&str], statuses: &[u16]) {
    on_every_door(&["items"], |run, way| {
        for target in targets {
            refused(run, way, "api.test", get("api.test", target), statuses);
        }
    });
}

/// Every target reaches the upstream as the second of the pair.
fn forwards(targets: &[(&str, &str)]) {
    on_every_door(&["items"], |run, way| {
        for (target, sent) in targets {
            let (_, recorded) = allowed(run, way, "api.test", get("api.test", target));
            assert_eq!(recorded.target, *sent);
        }
    });
}

#[test]
fn a_granted_route_is_forwarded_with_its_credential() {
    on_every_door(&["items"], |run, way| {
        let (response, recorded) = allowed(run, way, "api.test", get("api.test", "/v1/items/1"));
        assert_eq!(response.status, 200);
        assert_eq!(recorded.field("authorization").unwrap(), format!("Bearer {}", freeboard_tests::lab::C1));
        assert_eq!(recorded.all("host"), ["api.test"]);
        assert_eq!(recorded.server_name, "api.test");
        let (_, recorded) =
            allowed(run, way, "api.test", with_body("POST", "api.test", "/v1/items", &[], "{\"a\":1}"));
        assert_eq!(recorded.body, b"{\"a\":1}");
        let (_, recorded) = allowed(run, way, "api.test", get("api.test", "/v1/search?scope=read"));
        assert_eq!(recorded.target, "/v1/search?scope=read");
    });
}

#[test]
fn a01_dot_segments_are_refused() {
    refuses(
        &["/v1/items/../admin", "/v1/items/./1", "/v1/items/..", "/../v1/items/1", "/v1/items/."],
        &[400, 403],
    );
}

#[test]
fn a02_encoded_dot_segments_are_refused() {
    refuses(
        &[
            "/v1/items/%2e%2e/admin",
            "/v1/items/.%2E/admin",
            "/v1/items/%2E./admin",
            "/v1/items/%2e",
            "/v1/items/%2E%2e",
        ],
        &[400, 403],
    );
}

#[test]
fn a04_an_encoded_slash_is_data_of_one_segment_or_refused_and_never_decoded() {
    on_every_door(&["items"], |run, way| {
        for target in ["/v1/items/a%2Fadmin", "/v1/items/a%2fadmin"] {
            let before = run.lab.upstream.requests().len();
            let reply = run.tls(way, "api.test").ask(get("api.test", target)).answer();
            let recorded = &run.lab.upstream.requests()[before..];
            match recorded {
                [] => assert!([400, 403].contains(&reply.status), "{reply:?}"),
                [one] => assert_eq!(one.target, target),
                more => panic!("{more:?}"),
            }
        }
        // Two segments in one: no rule for one segment may take it as two.
        refused(run, way, "api.test", get("api.test", "/v1%2Fitems/1"), &[400, 403]);
        refused(run, way, "api.test", get("api.test", "/v1/items%2f1"), &[400, 403]);
    });
}

#[test]
fn a06_backslashes_are_refused() {
    refuses(
        &["/v1/items\\..\\admin", "/v1/items/%5c..%5cadmin", "\\v1\\items\\1", "/v1/items/a%5Cb"],
        &[400],
    );
}

#[test]
fn a07_double_encoding_is_decoded_at_most_once() {
    on_every_door(&["items"], |run, way| {
        for target in ["/v1/items/%252e%252e/admin", "/v1/items/a%252fadmin", "/v1/items/%252e"] {
            let before = run.lab.upstream.requests().len();
            let reply = run.tls(way, "api.test").ask(get("api.test", target)).answer();
            match &run.lab.upstream.requests()[before..] {
                [] => assert!([400, 403].contains(&reply.status), "{reply:?}"),
                [one] => assert_eq!(one.target, target),
                more => panic!("{more:?}"),
            }
        }
    });
}

#[test]
fn a08_overlong_and_broken_utf8_is_refused() {
    refuses(
        &["/v1/items/%c0%ae%c0%ae/admin", "/v1/items/%e0%80%af", "/v1/items/%c0%af", "/v1/items/%ed%a0%80"],
        &[400],
    );
    on_every_door(&["items"], |run, way| {
        // An opaque byte stays one, or is refused; it never becomes U+FFFD.
        let before = run.lab.upstream.requests().len();
        let reply = run.tls(way, "api.test").ask(get("api.test", "/v1/items/%ff")).answer();
        match &run.lab.upstream.requests()[before..] {
            [] => assert_eq!(reply.status, 400),
            [one] => assert_eq!(one.target.to_ascii_lowercase(), "/v1/items/%ff"),
            more => panic!("{more:?}"),
        }
    });
}

#[test]
fn a09_nul_and_control_characters_are_refused() {
    refuses(
        &[
            "/v1/items/x%00/../../admin",
            "/v1/items/x%00",
            "/v1/items/x\0y",
            "/v1/items/x\x01y",
            "/v1/items/x\x7fy",
            "/v1/items/x%01",
            "/v1/items/x%7f",
            "/v1/items/x\ty",
        ],
        &[400],
    );
    on_every_door(&["items"], |run, way| {
        refused(run, way, "api.test", b"GET /v1/items/\xff HTTP/1.1\r\nHost: api.test\r\n\r\n", &[400]);
        refused(run, way, "api.test", "GET /v1/items/caf\u{e9} HTTP/1.1\r\nHost: api.test\r\n\r\n", &[400]);
    });
}

#[test]
fn a10_escaped_line_ends_do_not_make_header_lines() {
    on_every_door(&["items"], |run, way| {
        let before = run.lab.upstream.requests().len();
        let reply =
            run.tls(way, "api.test").ask(get("api.test", "/v1/items/x%0d%0aX-Injected:%201")).answer();
        match &run.lab.upstream.requests()[before..] {
            [] => assert_eq!(reply.status, 400),
            [one] => assert!(one.field("x-injected").is_none() && one.target.contains("%0")),
            more => panic!("{more:?}"),
        }
    });
}

#[test]
fn a11_empty_segments_are_refused() {
    refuses(&["//v1/items/1", "/v1//items/1", "/v1/items//1", "/v1/items/1//"], &[400, 403]);
}

#[test]
fn a13_a_wildcard_is_exactly_one_segment() {
    refuses(&["/v1/items/1/secret", "/v1/items/", "/v1/items", "/v1/items/1/", "/v1", "/"], &[400, 403]);
}

#[test]
fn a15_case_is_kept_and_escapes_of_plain_letters_are_decoded_once() {
    refuses(&["/V1/ITEMS/1", "/v1/Items/1", "/v1/%49tems/1", "/v1/%69TEMS/1"], &[400, 403]);
    forwards(&[
        ("/v1/%69tems/1", "/v1/items/1"),
        ("/v1/items/%31", "/v1/items/1"),
        ("/v1/items/a%7Eb", "/v1/items/a~b"),
    ]);
}

#[test]
fn a16_path_parameters_are_refused() {
    refuses(
        &["/v1/items/1;jsessionid=x", "/v1/admin;/../items/1", "/v1/items;x/1", "/v1/items/1;"],
        &[400, 403],
    );
}

#[test]
fn a17_fragments_are_refused() {
    refuses(&["/v1/admin#/v1/items/1", "/v1/items/1#x", "/v1/items/1#"], &[400]);
}

#[test]
fn a40_method_overrides_are_taken_off_or_refused() {
    on_every_door(&["items"], |run, way| {
        for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x-http-method-override"]
        {
            let field = format!("{name}: DELETE");
            let before = run.lab.upstream.requests().len();
            let request = with_body("POST", "api.test", "/v1/items", &[&field], "{}");
            let records = run.lab.audit.decisions(&run.id).len();
            let reply = run.tls(way, "api.test").ask(request).answer();
            run.decisions(records + 1);
            match &run.lab.upstream.requests()[before..] {
                [] => assert!([400, 403].contains(&reply.status)),
                [one] => assert!(one.field(name).is_none(), "{name} reached the upstream"),
                more => panic!("{more:?}"),
            }
        }
        refused(
            run,
            way,
            "api.test",
            with_body("POST", "api.test", "/v1/items?_method=DELETE", &[], "{}"),
            &[400, 403],
        );
    });
}

#[test]
fn a41_methods_are_exact_tokens() {
    on_every_door(&["items", "pub"], |run, way| {
        for method in ["get", "GETX", "Get", "DELETE", "PATCH", "PROPFIND"] {
            refused(run, way, "api.test", bare(method, "api.test", "/v1/items/1", &[]), &[400, 403, 405]);
        }
        let long = "A".repeat(4096);
        for method in ["G=\":<>(e),[T];?\"", "GE T", "GET\t", "\u{c9}", "", long.as_str()] {
            refused(run, way, "api.test", bare(method, "api.test", "/v1/items/1", &[]), &[400, 403, 431]);
        }
    });
}

#[test]
fn a42_head_is_allowed_where_get_is() {
    on_every_door(&["pub", "items"], |run, way| {
        let (response, recorded) = allowed(run, way, "pub.test", bare("HEAD", "pub.test", "/x", &[]));
        assert_eq!((response.status, recorded.method.as_str()), (200, "HEAD"));
        refused(run, way, "api.test", bare("HEAD", "api.test", "/v1/items", &[]), &[403]);
    });
}

#[test]
fn a46_git_verbs_in_the_query_are_told_apart() {
    on_every_door(&["git"], |run, way| {
        let refs = "/org/repo.git/info/refs";
        allowed(run, way, "git.test", get("git.test", &format!("{refs}?service=git-upload-pack")));
        for query in [
            "?service=git-receive-pack",
            "?service=git-upload-pack&service=git-receive-pack",
            "?service=git-upload-pack&x=1",
            "",
            "?",
            "?service=",
            "?service=git-upload-pack%26service%3dgit-receive-pack",
            "?Service=git-receive-pack",
            "?service=git-upload-pack;service=git-receive-pack",
        ] {
            refused(run, way, "git.test", get("git.test", &format!("{refs}{query}")), &[400, 403]);
        }
        refused(
            run,
            way,
            "git.test",
            with_body("POST", "git.test", "/org/repo.git/git-receive-pack", &[], "x"),
            &[403],
        );
    });
}

#[test]
fn a49_odd_target_forms_are_refused() {
    on_every_door(&["items", "echo"], |run, way| {
        for request in [
            "GET * HTTP/1.1",
            "GET api.test:443 HTTP/1.1",
            "GET  HTTP/1.1",
            "GET v1/items/1 HTTP/1.1",
            "GET ?x HTTP/1.1",
        ] {
            refused(run, way, "api.test", format!("{request}\r\nHost: api.test\r\n\r\n"), &[400, 403]);
        }
        refused(run, way, "echo.test", "OPTIONS * HTTP/1.1\r\nHost: echo.test\r\n\r\n", &[400, 403]);
        refused(run, way, "api.test", "GET /v1/items/1\r\n\r\n", &[400]);
        for version in ["HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "HTTP/1.10", "XTTP/1.1"]
        {
            refused(
                run,
                way,
                "api.test",
                format!("GET /v1/items/1 {version}\r\nHost: api.test\r\n\r\n"),
                &[400, 505],
            );
        }
        refused(run, way, "api.test", "GET  /v1/items/1 HTTP/1.1\r\nHost: api.test\r\n\r\n", &[400]);
    });
}

#[test]
fn a53_unicode_forms_are_not_folded() {
    let policy = freeboard_tests::lab::POLICY
        .replace("\"POST /v1/items\",", "\"POST /v1/items\", \"GET /v1/menu/caf%C3%A9\",");
    let Some(lab) = Lab::start_with(&policy, &[]) else { return };
    let run = lab.run(&["items"]);
    for way in WAYS {
        allowed(&run, way, "api.test", get("api.test", "/v1/menu/caf%C3%A9"));
        allowed(&run, way, "api.test", get("api.test", "/v1/menu/caf%c3%a9"));
        for other in ["cafe%CC%81", "CAF%C3%89", "caf%C3%89", "caf%EF%BC%8F", "caf%E9", "caf"] {
            refused(&run, way, "api.test", get("api.test", &format!("/v1/menu/{other}")), &[400, 403]);
        }
    }
}

#[test]
fn queries_are_exact() {
    refuses(
        &[
            "/v1/search",
            "/v1/search?scope=write",
            "/v1/search?scope=read&scope=write",
            "/v1/search?scope=read&x=1",
            "/v1/search?scope=read;x=1",
            "/v1/search?scope",
            "/v1/search?SCOPE=read",
            "/v1/items/1?x=1",
        ],
        &[400, 403],
    );
}
