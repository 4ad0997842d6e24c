use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freeboard_policy::{CredentialView, Reason, SecretReference};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use crate::credential::{Attach, Material, Store};
use crate::error::Stop;

fn write(folder: &Path, name: &str, content: &str, mode: u32) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn file(path: &Path) -> SecretReference {
    SecretReference::File(path.to_str().unwrap().to_owned())
}

fn shell(script: &str) -> SecretReference {
    SecretReference::Exec(["/bin/sh", "-c", script].map(str::to_owned).to_vec())
}

fn bearer(token: SecretReference) -> CredentialView {
    CredentialView::Bearer { token }
}

async fn get(store: &Store, view: &CredentialView) -> Result<Arc<Material>, Stop> {
    store.material(&Arc::from("c1"), view, Some(&Arc::from("triage-bot")), 1_800_000_000).await
}

fn exposed(material: &Material) -> (String, String) {
    let (name, value) = match &material.attach {
        Attach::Header { name, value } => (name, value),
        Attach::Query { parameter, value } => (parameter, value),
        other => panic!("{other:?}"),
    };
    (name.to_string(), String::from_utf8(value.expose().to_vec()).unwrap())
}

#[tokio::test]
async fn attaches_each_static_kind() {
    let folder = tempfile::tempdir().unwrap();
    let secret = || file(&write(folder.path(), "s", "s3cret/+x\n", 0o600));
    let store = Store::default();
    for (name, view, expected) in [
        ("a", bearer(secret()), ("authorization", "Bearer s3cret/+x")),
        (
            "b",
            CredentialView::Header { name: "X-Api-Key".into(), value: secret() },
            ("x-api-key", "s3cret/+x"),
        ),
        (
            "c",
            CredentialView::Basic { username: "bot".into(), password: secret() },
            ("authorization", "Basic Ym90OnMzY3JldC8reA=="),
        ),
        ("d", CredentialView::Query { parameter: "key".into(), value: secret() }, ("key", "s3cret%2F%2Bx")),
    ] {
        let material = store.material(&Arc::from(name), &view, None, 0).await.unwrap();
        let (place, value) = exposed(&material);
        assert_eq!((place.as_str(), value.as_str()), expected);
        assert!(material.scrubber.contains(b"reply with s3cret/+x inside"), "{name}");
        assert!(!format!("{material:?}").contains("s3cret"), "Debug shows no secret");
    }
}

#[tokio::test]
async fn refuses_a_secret_file_that_others_can_read() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o644, false)] {
        let view = bearer(file(&write(folder.path(), &format!("{mode:o}"), "token", mode)));
        let answer = get(&Store::default(), &view).await;
        assert_eq!(answer.is_ok(), fine, "{mode:o}");
        if let Err(stop) = answer {
            assert_eq!(stop.reason, Reason::CredentialUnavailable);
            assert!(stop.detail.unwrap().contains("mode"));
        }
    }
}

/// C12: whatever is wrong with the source, the answer is a refusal, and it does not repeat the secret.
#[tokio::test]
async fn c12_fails_closed_for_every_broken_source() {
    let folder = tempfile::tempdir().unwrap();
    let here = |name: &str, content: &str| file(&write(folder.path(), name, content, 0o600));
    for (name, view) in [
        ("missing", bearer(SecretReference::File("/nonexistent/secret".into()))),
        ("a folder", bearer(file(folder.path()))),
        ("empty", bearer(here("empty", "\n"))),
        ("two lines", bearer(here("lines", "visible-part\nX-Injected: 1\n"))),
        ("a space", bearer(here("space", "visible-part two"))),
        ("not ASCII", bearer(here("utf8", "visible-part-é"))),
        ("too large", bearer(here("large", &"visible-part".repeat(8000)))),
        ("no variable", bearer(SecretReference::Env("FREEBOARD_TEST_NOT_SET".into()))),
        ("no systemd", bearer(SecretReference::Systemd("../etc/shadow".into()))),
        ("helper fails", bearer(shell("echo visible-part; exit 3"))),
        ("helper missing", bearer(SecretReference::Exec(vec!["/nonexistent/helper".into()]))),
        (
            "bad header",
            CredentialView::Header { name: "k".into(), value: here("cr", "visible-part\r\nX: y") },
        ),
        ("colon", CredentialView::Basic { username: "a:b".into(), password: here("p", "visible-part") }),
    ] {
        let stop = get(&Store::default(), &view).await.expect_err(name);
        assert_eq!(stop.reason, Reason::CredentialUnavailable, "{name}");
        assert!(!stop.to_string().contains("visible-part"), "{name}: {stop}");
    }
}

#[tokio::test]
async fn picks_up_a_replaced_file_and_gives_it_another_identity() {
    let folder = tempfile::tempdir().unwrap();
    let view = bearer(file(&write(folder.path(), "token", "first", 0o600)));
    let store = Store::default();
    let first = get(&store, &view).await.unwrap();
    assert!(Arc::ptr_eq(&first, &get(&store, &view).await.unwrap()));
    write(folder.path(), "next", "second", 0o600);
    std::fs::rename(folder.path().join("next"), folder.path().join("token")).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let second = loop {
        let now = get(&store, &view).await.unwrap();
        if !Arc::ptr_eq(&first, &now) {
            break now;
        }
        assert!(std::time::Instant::now() < deadline, "the new file was not noticed");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(exposed(&second).1, "Bearer second");
    assert_ne!(first.identity, second.identity);
    // A file that vanishes is not replaced by memory.
    std::fs::remove_file(folder.path().join("token")).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert!(get(&store, &view).await.is_err());
}

/// E27: many first requests at once read the source once.
#[tokio::test]
async fn e27_asks_the_source_once_for_many_waiting_requests() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let script = format!("echo x >> {}; sleep 0.2; echo token", count.display());
    let (store, view) = (Store::default(), bearer(shell(&script)));
    let all = futures_util::future::join_all((0..200).map(|_| get(&store, &view))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1);

    let (store, view) = (Store::default(), bearer(shell(&format!("echo x >> {}; exit 1", count.display()))));
    let all = futures_util::future::join_all((0..200).map(|_| get(&store, &view))).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 2, "one failed attempt for all");
}

fn jwt(algorithm: &str, key: SecretReference, ttl_seconds: u64) -> CredentialView {
    CredentialView::Jwt {
        algorithm: algorithm.to_owned(),
        key,
        issuer: Some("freeboard".into()),
        audience: Some("https://api.test".into()),
        key_id: Some("k1".into()),
        scope: Some("items:read".into()),
        ttl_seconds,
    }
}

/// Keys that OpenSSL made, as an operator would.
fn openssl(folder: &Path, name: &str, arguments: &[&str]) -> (SecretReference, Vec<u8>) {
    let private = folder.join(name);
    let made = std::process::Command::new("openssl")
        .args(["genpkey", "-out", private.to_str().unwrap()])
        .args(arguments)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).unwrap();
    let public = std::process::Command::new("openssl")
        .args(["pkey", "-pubout", "-in", private.to_str().unwrap()])
        .output()
        .unwrap();
    (file(&private), public.stdout)
}

#[tokio::test]
async fn signs_tokens_with_each_algorithm_and_all_claims() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "0123456789abcdef0123456789abcdef";
    let rsa = openssl(folder.path(), "rsa", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
    let ec = openssl(folder.path(), "ec", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let ed = openssl(folder.path(), "ed", &["-algorithm", "ED25519"]);
    let hs = file(&write(folder.path(), "hs", secret, 0o600));
    let now = jiff::Timestamp::now().as_second();
    for (name, reference, key, algorithm) in [
        ("HS256", hs, DecodingKey::from_secret(secret.as_bytes()), Algorithm::HS256),
        ("RS256", rsa.0, DecodingKey::from_rsa_pem(&rsa.1).unwrap(), Algorithm::RS256),
        ("ES256", ec.0, DecodingKey::from_ec_pem(&ec.1).unwrap(), Algorithm::ES256),
        ("EdDSA", ed.0, DecodingKey::from_ed_pem(&ed.1).unwrap(), Algorithm::EdDSA),
    ] {
        let caller = Arc::from("triage-bot");
        let view = jwt(name, reference, 300);
        let material = Store::default().material(&Arc::from(name), &view, Some(&caller), now).await.unwrap();
        let (place, value) = exposed(&material);
        assert_eq!(place, "authorization");
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&["https://api.test"]);
        validation.set_issuer(&["freeboard"]);
        validation.validate_nbf = true;
        let token = value.strip_prefix("Bearer ").unwrap();
        let decoded = jsonwebtoken::decode::<serde_json::Value>(token, &key, &validation).unwrap();
        assert_eq!(decoded.header.kid.as_deref(), Some("k1"));
        assert_eq!(decoded.claims["sub"], "triage-bot");
        assert_eq!(decoded.claims["scope"], "items:read");
        assert_eq!(decoded.claims["exp"].as_i64().unwrap() - decoded.claims["iat"].as_i64().unwrap(), 300);
        assert_eq!(decoded.claims["jti"].as_str().unwrap().len(), 32);
        assert!(material.scrubber.contains(token.as_bytes()));
    }
}

#[tokio::test]
async fn mints_per_caller_keeps_a_token_and_renews_it_before_it_expires() {
    let folder = tempfile::tempdir().unwrap();
    let key = file(&write(folder.path(), "hs", &"k".repeat(32), 0o600));
    let (store, name) = (Store::default(), Arc::from("jwt"));
    let (one, two) = (Arc::from("one"), Arc::from("two"));
    let view = jwt("HS256", key.clone(), 600);
    let first = store.material(&name, &view, Some(&one), 1_800_000_000).await.unwrap();
    let same = store.material(&name, &view, Some(&one), 1_800_000_000).await.unwrap();
    let other = store.material(&name, &view, Some(&two), 1_800_000_000).await.unwrap();
    assert!(Arc::ptr_eq(&first, &same));
    assert_ne!(exposed(&first).1, exposed(&other).1);
    assert_ne!(first.identity, other.identity, "two callers never share an upstream connection");

    let (store, view) = (Store::default(), jwt("HS256", key, 2));
    let first = store.material(&name, &view, Some(&one), 1_800_000_000).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let renewed = store.material(&name, &view, Some(&one), 1_800_000_001).await.unwrap();
    assert_ne!(exposed(&first).1, exposed(&renewed).1);
    assert_eq!(first.identity, renewed.identity, "a renewed token keeps its connections");
}

#[tokio::test]
async fn refuses_weak_and_wrong_keys() {
    let folder = tempfile::tempdir().unwrap();
    let short = file(&write(folder.path(), "short", "too-short", 0o600));
    let text = file(&write(folder.path(), "text", &"not a pem".repeat(8), 0o600));
    for view in [
        jwt("HS256", short, 60),
        jwt("ES256", text.clone(), 60),
        jwt("EdDSA", text.clone(), 60),
        jwt("RS256", text.clone(), 60),
        jwt("none", text, 60),
    ] {
        let stop = get(&Store::default(), &view).await.unwrap_err();
        assert_eq!(stop.reason, Reason::CredentialUnavailable);
        assert!(!stop.to_string().contains("not a pem") && !stop.to_string().contains("too-short"));
    }
}
