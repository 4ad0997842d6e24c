//! Credentials that issuers hand out, from the issuer to the API and back: the whole broker over real TLS. Classes C and E.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use freeboard_tests::answer::Answer;
use freeboard_tests::canary::Canary;
use freeboard_tests::expect::{bare, get};
use freeboard_tests::lab::{Lab, Run, WAYS, Way};
use freeboard_tests::real::nginx;
use freeboard_tests::upstream::Recorded;
use freeboard_tests::wait;

const POLICY: &str = r#"
[credential.client]
kind = "oauth2-client"
token_url = "https://cdn.test/oauth2/token"
client_id = "freeboard"
client_secret = { file = "FOLDER/secrets/c1" }
scope = "items:read"
revocation_url = "https://cdn.test/oauth2/revoke"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[credential.elsewhere]
kind = "oauth2-client"
token_url = "https://reg.test/token"
client_id = "freeboard"
client_secret = { file = "FOLDER/secrets/c1" }
trust = { ca_file = "FOLDER/upstream-ca.pem" }

[credential.helper]
kind = "exec"
command = ["/bin/sh", "FOLDER/helper.sh"]

[credential.certificate]
kind = "mtls"
certificate = { file = "FOLDER/secrets/client.pem" }
key = { file = "FOLDER/secrets/client.key" }

[api.items]
origins = ["https://api.test"]
credential = "client"
placeholder = { variable = "ITEMS_TOKEN", value = "item-****************" }
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.echo]
origins = ["https://echo.test"]
credential = "client"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.private]
origins = ["https://evil.test"]
credential = "elsewhere"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.helped]
origins = ["https://git.test"]
credential = "helper"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.open]
origins = ["https://pub.test"]
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.mutual]
origins = ["https://aws.test"]
credential = "certificate"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[grant.all]
callers = ["lab"]
budget = { calls = 100000, per_minute = 100000, concurrent = 64 }
[[grant.all.allow]]
api = "items"
routes = ["GET /v1/**"]
[[grant.all.allow]]
api = "echo"
routes = ["GET /**"]
[[grant.all.allow]]
api = "private"
routes = ["GET /**"]
[[grant.all.allow]]
api = "helped"
routes = ["GET /**"]
[[grant.all.allow]]
api = "open"
routes = ["GET /**?*"]
[[grant.all.allow]]
api = "mutual"
routes = ["GET /**"]
"#;

/// A token endpoint that checks its client and counts its tokens.
fn issuer(lab: &Lab) -> Arc<AtomicUsize> {
    use base64::Engine as _;
    let count = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::clone(&count);
    lab.upstream.on("cdn.test", "/oauth2/token", move |asked: &Recorded| {
        let pair = format!("freeboard:{}", freeboard_tests::lab::C1);
        let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
        let form = String::from_utf8(asked.body.clone()).unwrap();
        if asked.field("authorization") != Some(&basic)
            || form != "grant_type=client_credentials&scope=items%3Aread"
        {
            return Answer::new(401, &["Content-Type: application/json"], r#"{"error":"invalid_client"}"#);
        }
        let number = tokens.fetch_add(1, Ordering::SeqCst) + 1;
        Answer::json(&serde_json::json!({
            "access_token": format!("canary-minted-{number}-5f8e1b"), "token_type": "Bearer", "expires_in": 300, "scope": "items:read",
        }))
    });
    lab.upstream.on("cdn.test", "/oauth2/revoke", |_| Answer::new(200, &[], ""));
    count
}

fn ask(run: &Run<'_>, way: Way, host: &str, path: &str) -> freeboard_tests::response::Response {
    run.tls(way, host).ask(get(host, path)).answer()
}

#[test]
fn a_minted_token_reaches_its_api_only_and_is_revoked_with_its_run() {
    let Some(lab) = Lab::start_with(POLICY, &[]) else { return };
    let count = issuer(&lab);
    let (one, two) = (lab.run(&["all"]), lab.run(&["all"]));
    for way in WAYS {
        for (run, token) in [(&one, "canary-minted-1-5f8e1b"), (&two, "canary-minted-2-5f8e1b")] {
            assert_eq!(ask(run, way, "api.test", "/v1/x").status, 200);
            let at_api: Vec<Recorded> =
                lab.upstream.take().into_iter().filter(|request| request.host == "api.test").collect();
            assert_eq!(at_api[0].all("authorization"), [format!("Bearer {token}")]);
            // What reflects it does not give it away.
            for path in ["/headers", "/base64", "/hex", "/location", "/split"] {
                let response = ask(run, way, "echo.test", path);
                let seen = [response.head.clone(), response.body.clone()].concat();
                Canary::new(token).assert_absent(path, &seen);
            }
        }
    }
    // One token for each run, and for both of its APIs.
    assert_eq!(count.load(Ordering::SeqCst), 2);
    lab.upstream.take();
    one.close();
    let revoked = wait::until("the token is revoked", || {
        lab.upstream.requests().into_iter().find(|request| request.path() == "/oauth2/revoke")
    });
    let form = String::from_utf8(revoked.body).unwrap();
    assert!(form.starts_with("token=canary-minted-1-5f8e1b&"), "{form}");
    assert_eq!(ask(&two, WAYS[0], "api.test", "/v1/x").status, 200);
    let log = lab.audit.text();
    assert!(!log.contains("canary-minted"), "no token in the audit log");
}

#[test]
fn an_issuer_that_is_down_stops_requests_with_a_reason_and_is_not_stormed() {
    let Some(lab) = Lab::start_with(POLICY, &[]) else { return };
    lab.upstream.on("cdn.test", "/oauth2/token", |_| Answer::new(503, &[], "down").closing());
    let run = lab.run(&["all"]);
    for way in WAYS {
        for _ in 0..20 {
            let response = ask(&run, way, "api.test", "/v1/x");
            assert_eq!((response.status, response.reason().as_deref()), (503, Some("issuer_unavailable")));
        }
    }
    let requests = lab.upstream.take();
    assert!(requests.iter().all(|request| request.host == "cdn.test"), "the API got nothing");
    assert!(requests.len() <= 5, "{} questions for 40 requests", requests.len());
    let last = run.decisions(40).pop().unwrap();
    assert_eq!(
        (last["verdict"].as_str(), last["reason"].as_str()),
        (Some("failed"), Some("issuer_unavailable"))
    );
    // It comes back, and nobody has to do anything.
    issuer(&lab);
    wait::until_true("the issuer is asked again", || ask(&run, WAYS[0], "api.test", "/v1/x").status == 200);
}

/// An issuer is dialled with the checks of any upstream: a private address that its credential does not name is refused.
#[test]
fn an_issuer_at_a_private_address_is_not_dialled_unless_it_is_named() {
    let Some(lab) = Lab::start_with(POLICY, &[]) else { return };
    let run = lab.run(&["all"]);
    let response = ask(&run, WAYS[0], "evil.test", "/x");
    assert_eq!((response.status, response.reason().as_deref()), (503, Some("issuer_unavailable")));
    assert!(lab.upstream.take().is_empty(), "neither the issuer nor the API was reached");
    assert!(run.decisions(1)[0]["detail"].as_str().unwrap().contains("address_refused"));
}

/// The helper's parent is a process that does nothing but run helpers: neither the broker nor its child with its memory.
#[test]
fn a_helpers_token_is_attached_and_scrubbed() {
    let Some(lab) = Lab::start_with(POLICY, &[]) else { return };
    let folder = lab.folder().display().to_string();
    let script = format!(
        "tr '\\0' ' ' < /proc/$PPID/cmdline > {folder}/parent\n\
         printf '{{\"token\":\"canary-helper-0a1b2c3d4e5f\",\"expires_in\":300}}'\n"
    );
    std::fs::write(lab.folder().join("helper.sh"), script).unwrap();
    std::fs::write(lab.folder().join("parent"), "").unwrap();
    std::fs::set_permissions(lab.folder().join("parent"), std::fs::Permissions::from_mode(0o666)).unwrap();
    lab.upstream.on("git.test", "/mirror", |request| {
        Answer::new(200, &[], request.field("authorization").unwrap_or_default())
    });
    let run = lab.run(&["all"]);
    for way in WAYS {
        let response = ask(&run, way, "git.test", "/mirror");
        let recorded = lab.upstream.take();
        assert_eq!(recorded[0].all("authorization"), ["Bearer canary-helper-0a1b2c3d4e5f"]);
        Canary::new("canary-helper-0a1b2c3d4e5f").assert_absent("the mirror", &response.body);
    }
    let parent = std::fs::read_to_string(lab.folder().join("parent")).unwrap();
    assert!(parent.contains("freeboard run-helpers "), "{parent}");
}

/// H51: a program that insists on a key gets one that is worth nothing; where it does not belong, it is a finding.
#[test]
fn h51_a_placeholder_becomes_the_credential_at_its_api_and_a_finding_elsewhere() {
    use base64::Engine as _;
    let Some(lab) = Lab::start_with(POLICY, &[]) else { return };
    issuer(&lab);
    let variables = lab.prepare(&["all"]).unwrap().variables;
    let [(name, value)] = variables.as_slice() else { panic!("{variables:?}") };
    assert_eq!((name.as_str(), value.len()), ("ITEMS_TOKEN", "item-".len() + 16));
    let ran = lab.sandbox(&["all"], &["/bin/sh", "-c", "printenv ITEMS_TOKEN"]).succeeded();
    assert_eq!(ran.stdout.trim(), value);
    let run = lab.run(&["all"]);
    let with = |host: &str, target: &str, field: &str| bare("GET", host, target, &[field]);
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("user:{value}"));
    let mut count = 0;
    for way in WAYS {
        let field = format!("Authorization: Bearer {value}");
        count += 1;
        assert_eq!(run.tls(way, "api.test").ask(with("api.test", "/v1/x", &field)).answer().status, 200);
        let recorded = lab.upstream.take();
        let at_api = recorded.iter().find(|request| request.host == "api.test").unwrap();
        assert_eq!(at_api.all("authorization").len(), 1);
        assert!(at_api.field("authorization").unwrap().starts_with("Bearer canary-minted-"));
        for (host, target, field) in [
            ("pub.test", "/x".to_owned(), field.clone()),
            ("pub.test", "/x".to_owned(), format!("X-Debug: {value}")),
            ("pub.test", "/x".to_owned(), format!("Authorization: Basic {basic}")),
            ("pub.test", format!("/x?key={value}"), "Accept: */*".to_owned()),
            ("echo.test", "/headers".to_owned(), field.clone()),
        ] {
            let response = run.tls(way, host).ask(with(host, &target, &field)).answer();
            assert_eq!(
                (response.status, response.reason().as_deref()),
                (403, Some("placeholder_astray")),
                "{field}"
            );
            count += 1;
            let last = run.decisions(count).pop().unwrap();
            assert_eq!(
                (last["verdict"].as_str(), last["reason"].as_str()),
                (Some("denied"), Some("placeholder_astray"))
            );
        }
        assert!(lab.upstream.take().iter().all(|request| request.host == "cdn.test"), "nothing was sent");
    }
}

/// nginx asks for a certificate, and says whose it got.
#[test]
fn shows_a_client_certificate_that_nginx_verifies() {
    let Some(lab) = Lab::start_with(POLICY, &["aws.test"]) else { return };
    let ca = lab.folder().join("upstream-ca.pem");
    let directives = format!(
        "ssl_client_certificate {};\nssl_verify_client on;\nlocation / {{ return 200 \"$ssl_client_verify $ssl_client_s_dn [$http_authorization]\"; }}",
        ca.display()
    );
    let _nginx = nginx(&lab, &[("aws.test", &directives)]);
    let run = lab.run(&["all"]);
    let certificate = |name: &str| {
        let (certificate, key) = lab.upstream.ca().leaf_pem(&[name]);
        lab.secret("client.key", &key);
        lab.secret("client.pem", &certificate);
    };
    // Without one the request does not go out.
    assert_eq!(ask(&run, WAYS[0], "aws.test", "/").reason().as_deref(), Some("credential_unavailable"));
    certificate("client.one.test");
    wait::until_true("the certificate is read", || ask(&run, WAYS[0], "aws.test", "/").status == 200);
    for way in WAYS {
        let request = bare("GET", "aws.test", "/", &["Authorization: Bearer mine"]);
        let response = run.tls(way, "aws.test").ask(request).answer();
        let body = String::from_utf8(response.body).unwrap();
        assert!(body.starts_with("SUCCESS ") && body.ends_with("[]"), "{body}");
    }
}
