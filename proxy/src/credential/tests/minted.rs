//! The frame of minted credentials, with an issuer that is a function.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freeboard_policy::{ApiView, CredentialView, Policy, Reason, SourceFile};

use crate::credential::minted::{Holder, IssuerAnswer, IssuerRequest, Issuers, Leases, Mints};
use crate::credential::{Attach, Material, Secret};
use crate::error::Stop;

pub(super) const NOW: i64 = 1_800_000_000;

/// One question as the issuer got it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) issuer: String,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }

    /// A parameter of the form, decoded.
    pub(super) fn form(&self, name: &str) -> Option<String> {
        let pairs = self.body.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find(|(other, _)| *other == name)?.1;
        Some(percent_encoding::percent_decode_str(value).decode_utf8().unwrap().into_owned())
    }
}

type Script = Box<dyn Fn(&Asked, usize) -> Result<IssuerAnswer, Stop> + Send + Sync>;

pub(super) struct Fake {
    script: Script,
    pub(super) delay: Duration,
    pub(super) asked: Mutex<Vec<Asked>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Issuers for Fake {
    fn ask<'a>(
        &'a self,
        issuer: &'a Arc<ApiView>,
        request: IssuerRequest,
    ) -> Pin<Box<dyn Future<Output = Result<IssuerAnswer, Stop>> + Send + 'a>> {
        let text = |secret: &Secret| String::from_utf8(secret.expose().to_vec()).unwrap();
        let asked = Asked {
            issuer: issuer.origins[0].0.to_string(),
            method: request.method,
            path: request.path,
            fields: request.fields.iter().map(|(name, value)| (*name, text(value))).collect(),
            body: request.body.as_ref().map(text).unwrap_or_default(),
        };
        let count = {
            let mut all = self.asked.lock().unwrap();
            all.push(asked.clone());
            all.len()
        };
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            (self.script)(&asked, count)
        })
    }
}

/// As [`Issuers::ask`] gives it.
#[expect(clippy::unnecessary_wraps, reason = "scripts say failures in the same type")]
pub(super) fn answer(status: u16, body: &str) -> Result<IssuerAnswer, Stop> {
    Ok(IssuerAnswer {
        status,
        body: Secret::new(body.as_bytes().to_vec()),
        date: Some(NOW),
        retry_after: None,
    })
}

pub(super) fn token(token: &str, expires_in: u64) -> Result<IssuerAnswer, Stop> {
    answer(200, &format!(r#"{{"access_token":"{token}","token_type":"bearer","expires_in":{expires_in}}}"#))
}

/// A credential of this text, its issuer, and a run.
pub(super) struct World {
    pub(super) fake: Arc<Fake>,
    pub(super) mints: Mints,
    view: CredentialView,
    pub(super) leases: Arc<Leases>,
    pub(super) folder: tempfile::TempDir,
}

impl World {
    pub(super) fn new(
        text: &str,
        script: impl Fn(&Asked, usize) -> Result<IssuerAnswer, Stop> + Send + Sync + 'static,
    ) -> Self {
        Self::slow(text, Duration::ZERO, script)
    }

    /// `FOLDER` in the text is a folder with a file `secret`.
    pub(super) fn slow(
        text: &str,
        delay: Duration,
        script: impl Fn(&Asked, usize) -> Result<IssuerAnswer, Stop> + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("secret"), "s3cr3t & more");
        let text = text.replace("FOLDER", folder.path().to_str().unwrap());
        let policy = format!(
            "[credential.c]\n{text}\n[api.a]\norigins = [\"https://a.test\"]\ncredential = \"c\"\n[grant.g]\ncallers = [\"x\"]\n[[grant.g.allow]]\napi = \"a\"\nroutes = [\"GET /x\"]\n"
        );
        let loaded = Policy::load(&[SourceFile::new("p.toml", policy)])
            .unwrap_or_else(|problems| panic!("{}", freeboard_policy::render_all(&problems)));
        let view = loaded.policy.credential("c").unwrap().clone();
        let fake = Arc::new(Fake { script: Box::new(script), delay, asked: Mutex::default() });
        let mints = Mints::new(Arc::<Fake>::clone(&fake));
        Self { fake, mints, view, leases: Arc::default(), folder }
    }

    pub(super) async fn get(&self, run: &str, now_unix: i64) -> Result<Arc<Material>, Stop> {
        self.get_for(run, Some("bot"), now_unix).await
    }

    pub(super) async fn get_for(
        &self,
        run: &str,
        caller: Option<&str>,
        now_unix: i64,
    ) -> Result<Arc<Material>, Stop> {
        let (run, caller) = (Arc::from(run), caller.map(Arc::from));
        let holder = Holder { run: &run, caller: caller.as_ref(), leases: &self.leases };
        self.mints.minter(&Arc::from("c"), &self.view).material(holder, now_unix).await
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.fake.asked.lock().unwrap().clone()
    }
}

pub(super) fn write(path: &Path, content: &str) -> PathBuf {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_owned()
}

pub(super) fn value(material: &Material) -> String {
    match &material.attach {
        Attach::Header { value, .. } | Attach::Query { value, .. } => {
            String::from_utf8(value.expose().to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

async fn eventually(what: &str, check: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const CLIENT: &str = r#"
kind = "oauth2-client"
token_url = "https://login.test/token"
client_id = "free board"
client_secret = { file = "FOLDER/secret" }
scope = "read write"
"#;

#[tokio::test]
async fn asks_as_the_client_authenticates() {
    use base64::Engine as _;
    let basic = World::new(CLIENT, |_, _| token("t-1", 300));
    assert_eq!(value(&basic.get("r", NOW).await.unwrap()), "Bearer t-1");
    let asked = &basic.asked()[0];
    let pair = base64::engine::general_purpose::STANDARD.encode("free%20board:s3cr3t%20%26%20more");
    assert_eq!((asked.method, asked.path.as_str(), asked.issuer.as_str()), ("POST", "/token", "login.test"));
    assert_eq!(asked.field("authorization"), Some(format!("Basic {pair}").as_str()));
    assert_eq!(asked.body, "grant_type=client_credentials&scope=read%20write");

    let post =
        World::new(&format!("{CLIENT}authentication = \"client_secret_post\""), |_, _| token("t", 300));
    post.get("r", NOW).await.unwrap();
    let asked = &post.asked()[0];
    assert_eq!(asked.field("authorization"), None);
    assert_eq!(asked.form("client_secret").as_deref(), Some("s3cr3t & more"));
    assert_eq!(asked.form("client_id").as_deref(), Some("free board"));
}

/// E27: many first requests at once are one question, and so is one failure for all of them.
#[tokio::test]
async fn e27_asks_the_issuer_once_for_many_waiting_requests() {
    let world = World::slow(CLIENT, Duration::from_millis(100), |_, _| token("t", 300));
    let all = futures_util::future::join_all((0..200).map(|_| world.get("r", NOW))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(world.asked().len(), 1);

    let world = World::slow(CLIENT, Duration::from_millis(100), |_, _| answer(500, "no"));
    let all = futures_util::future::join_all((0..200).map(|_| world.get("r", NOW))).await;
    assert!(all.iter().all(|one| one.as_ref().unwrap_err().reason == Reason::IssuerUnavailable));
    assert_eq!(world.asked().len(), 1);
}

/// An issuer in trouble is asked again after a pause that grows.
#[tokio::test]
async fn an_issuer_that_fails_is_not_asked_by_every_request() {
    let world = World::new(CLIENT, |_, _| Err(Stop::new(Reason::UpstreamUnreachable, "refused")));
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(2500) {
        let stop = world.get("r", NOW).await.unwrap_err();
        assert_eq!(stop.reason, Reason::IssuerUnavailable);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // At 0 s, after 1 s; the next one only at 3 s.
    assert_eq!(world.asked().len(), 2);
}

#[tokio::test]
async fn never_hands_out_an_expired_token() {
    let world = World::new(CLIENT, |_, count| if count == 1 { token("t", 1) } else { answer(503, "") });
    let first = world.get("r", NOW).await.unwrap();
    assert_eq!(value(&first), "Bearer t");
    // The wall clock says so while the monotonic one stood still (a machine that slept).
    assert_eq!(world.get("r", NOW + 3600).await.unwrap_err().reason, Reason::IssuerUnavailable);
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert_eq!(world.get("r", NOW).await.unwrap_err().reason, Reason::IssuerUnavailable);
}

#[tokio::test]
async fn renews_before_expiry_while_requests_go_on_with_the_token_at_hand() {
    let world = World::slow(CLIENT, Duration::from_millis(300), |_, count| token(&format!("t-{count}"), 4));
    let first = world.get("r", NOW).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2000)).await;
    let before = Instant::now();
    assert_eq!(value(&world.get("r", NOW + 2).await.unwrap()), "Bearer t-1");
    assert!(before.elapsed() < Duration::from_millis(250), "nobody waits for the next token");
    eventually("the next token arrives", async || {
        value(&world.get("r", NOW + 2).await.unwrap()) == "Bearer t-2"
    })
    .await;
    let second = world.get("r", NOW + 2).await.unwrap();
    assert_eq!(first.identity, second.identity, "a renewed token keeps its connections");
    assert_eq!(world.asked().len(), 2);
}

#[tokio::test]
async fn a_renewal_that_fails_leaves_the_token_that_is_good() {
    let world = World::new(CLIENT, |_, count| if count == 1 { token("t", 4) } else { answer(500, "") });
    world.get("r", NOW).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for _ in 0..20 {
        assert_eq!(value(&world.get("r", NOW + 2).await.unwrap()), "Bearer t");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.asked().len(), 2, "one attempt, then its pause");
}

#[tokio::test]
async fn a_guest_that_leaves_does_not_lose_the_token() {
    let world = World::slow(CLIENT, Duration::from_millis(200), |_, _| token("t", 300));
    assert!(tokio::time::timeout(Duration::from_millis(50), world.get("r", NOW)).await.is_err());
    world.get("r", NOW).await.unwrap();
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test]
async fn refuses_a_token_with_more_scopes_than_were_asked_for() {
    for (scope, fine) in
        [("read write", true), ("write", true), ("read write admin", false), ("ADMIN", false)]
    {
        let body =
            format!(r#"{{"access_token":"t","token_type":"Bearer","expires_in":60,"scope":"{scope}"}}"#);
        let world = World::new(CLIENT, move |_, _| answer(200, &body));
        let got = world.get("r", NOW).await;
        assert_eq!(got.is_ok(), fine, "{scope}");
        if let Err(stop) = got {
            assert_eq!(stop.reason, Reason::CredentialUnavailable);
        }
    }
}

/// C12: whatever the issuer says, the answer is a refusal that repeats no secret.
#[tokio::test]
async fn c12_fails_closed_for_every_broken_answer() {
    for (status, body, reason, says) in [
        (200, "{}", Reason::CredentialUnavailable, "not what"),
        (200, "visible-part", Reason::CredentialUnavailable, "not what"),
        (200, r#"{"access_token":"visible-part x","expires_in":60}"#, Reason::CredentialUnavailable, "ASCII"),
        (
            200,
            r#"{"access_token":"visible-part","token_type":"DPoP"}"#,
            Reason::CredentialUnavailable,
            "bearer",
        ),
        (200, r#"{"access_token":"visible-part","expires_in":0}"#, Reason::CredentialUnavailable, "expired"),
        (200, r#"{"access_token":"visible-part","expires_in":-5}"#, Reason::CredentialUnavailable, "seconds"),
        (400, r#"{"error":"invalid_client"}"#, Reason::CredentialUnavailable, "400 `invalid_client`"),
        (401, r#"{"error":"visible-part of a secret"}"#, Reason::CredentialUnavailable, "401"),
        (302, "", Reason::CredentialUnavailable, "302"),
        (429, "", Reason::IssuerUnavailable, "429"),
        (503, "visible-part", Reason::IssuerUnavailable, "503"),
    ] {
        let world = World::new(CLIENT, move |_, _| answer(status, body));
        let stop = world.get("r", NOW).await.unwrap_err();
        assert_eq!(stop.reason, reason, "{body}");
        assert!(stop.to_string().contains(says), "{stop}");
        assert!(!stop.to_string().contains("visible-part") && !stop.to_string().contains("s3cr3t"), "{stop}");
    }
    let world = World::new(CLIENT, |_, _| {
        Ok(IssuerAnswer { date: Some(NOW - 900), ..answer(400, r#"{"error":"invalid_request"}"#).unwrap() })
    });
    assert!(world.get("r", NOW).await.unwrap_err().to_string().contains("clock differs from ours by 900 s"));
}

#[tokio::test]
async fn a_replaced_client_secret_is_used_without_a_restart() {
    let world = World::new(CLIENT, |asked, _| token(&format!("t{}", asked.fields[0].1.len()), 300));
    let first = value(&world.get("r", NOW).await.unwrap());
    let path = world.folder.path().join("secret");
    write(&world.folder.path().join("next"), "another and longer secret");
    std::fs::rename(world.folder.path().join("next"), path).unwrap();
    eventually("the new secret is used", async || value(&world.get("r", NOW).await.unwrap()) != first).await;
}

#[tokio::test]
async fn a_token_that_can_be_revoked_belongs_to_one_run_and_ends_with_it() {
    let text = format!("{CLIENT}revocation_url = \"https://login.test/revoke\"");
    let world = World::new(&text, |asked, count| match asked.path.as_str() {
        "/token" => token(&format!("t-{count}"), 300),
        _ => answer(200, ""),
    });
    let (one, two) = ("one", "two");
    assert_eq!(value(&world.get(one, NOW).await.unwrap()), "Bearer t-1");
    assert_eq!(value(&world.get(two, NOW).await.unwrap()), "Bearer t-2");
    assert_eq!(value(&world.get(one, NOW).await.unwrap()), "Bearer t-1");
    world.leases.give_back(&Arc::from(one)).await;
    let revoked: Vec<_> = world.asked().into_iter().filter(|asked| asked.path == "/revoke").collect();
    assert_eq!(revoked.len(), 2);
    assert_eq!(revoked[0].form("token").as_deref(), Some("t-1"));
    assert!(revoked[0].field("authorization").unwrap().starts_with("Basic "));
    // Too late for the run: what arrives now is given back at once.
    assert_eq!(value(&world.get("three", NOW).await.unwrap()), "Bearer t-5");
    let last = world.asked().pop().unwrap();
    assert_eq!((last.path.as_str(), last.form("token").as_deref()), ("/revoke", Some("t-5")));
}

const REFRESH: &str = r#"
kind = "oauth2-refresh"
token_url = "https://login.test/token"
client_id = "public"
refresh_token = { file = "FOLDER/secret" }
rotated_file = "FOLDER/rotated"
"#;

fn rotating(asked: &Asked, count: usize) -> Result<IssuerAnswer, Stop> {
    let used = asked.form("refresh_token").unwrap();
    answer(
        200,
        &format!(r#"{{"access_token":"for {used}","expires_in":1,"refresh_token":"rt-{count}"}}"#)
            .replace("for s3cr3t & more", "first")
            .replace("for ", "for-"),
    )
}

#[tokio::test]
async fn a_refresh_token_that_the_issuer_replaces_is_kept_across_restarts() {
    let world = World::new(REFRESH, rotating);
    assert_eq!(value(&world.get("r", NOW).await.unwrap()), "Bearer first");
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert_eq!(value(&world.get("r", NOW).await.unwrap()), "Bearer for-rt-1");
    let rotated = world.folder.path().join("rotated");
    assert_eq!(std::fs::metadata(&rotated).unwrap().permissions().mode() & 0o777, 0o600);

    // A restart: the same files, nothing in memory.
    let again = World::new(REFRESH, rotating);
    std::fs::copy(&rotated, again.folder.path().join("rotated")).unwrap();
    assert_eq!(value(&again.get("r", NOW).await.unwrap()), "Bearer for-rt-2");

    // An operator's new token is taken in place of what followed the old one.
    let anew = World::new(REFRESH, rotating);
    std::fs::copy(&rotated, anew.folder.path().join("rotated")).unwrap();
    write(&anew.folder.path().join("secret"), "new");
    assert_eq!(value(&anew.get("r", NOW).await.unwrap()), "Bearer for-new");
}

/// Keys that OpenSSL made, as an operator would.
fn key(folder: &Path) -> jsonwebtoken::DecodingKey {
    let private = folder.join("key");
    let made = std::process::Command::new("openssl")
        .args(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"])
        .arg(&private)
        .output()
        .unwrap();
    assert!(made.status.success());
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).unwrap();
    let public = std::process::Command::new("openssl")
        .args(["pkey", "-pubout", "-in"])
        .arg(&private)
        .output()
        .unwrap();
    jsonwebtoken::DecodingKey::from_ec_pem(&public.stdout).unwrap()
}

fn claims(token: &str, key: &jsonwebtoken::DecodingKey) -> serde_json::Value {
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::ES256);
    validation.set_audience(&["https://login.test/token"]);
    validation.validate_exp = false;
    jsonwebtoken::decode::<serde_json::Value>(token, key, &validation).unwrap().claims
}

#[tokio::test]
async fn a_client_with_a_key_signs_an_assertion_for_the_token_endpoint() {
    let text = r#"
kind = "oauth2-client"
token_url = "https://login.test/token"
client_id = "freeboard"
client_key = { file = "FOLDER/key" }
algorithm = "ES256"
"#;
    let world = World::new(text, |_, _| token("t", 300));
    let public = key(world.folder.path());
    world.get("r", NOW).await.unwrap();
    let asked = &world.asked()[0];
    assert!(asked.form("client_assertion_type").unwrap().ends_with(":jwt-bearer"));
    let claims = claims(&asked.form("client_assertion").unwrap(), &public);
    assert_eq!((claims["iss"].as_str(), claims["sub"].as_str()), (Some("freeboard"), Some("freeboard")));
    assert_eq!(claims["iat"].as_i64(), Some(NOW - 60), "dated back for an issuer whose clock is behind");
    assert!(claims["exp"].as_i64().unwrap() > NOW + 120);
}

#[tokio::test]
async fn exchanges_a_token_that_was_signed_for_the_caller() {
    let text = r#"
kind = "token-exchange"
token_url = "https://login.test/token"
subject = { algorithm = "ES256", key = { file = "FOLDER/key" }, issuer = "freeboard" }
audience = "https://a.test"
"#;
    let world = World::new(text, |_, count| token(&format!("t-{count}"), 300));
    let public = key(world.folder.path());
    assert_eq!(value(&world.get_for("1", Some("one"), NOW).await.unwrap()), "Bearer t-1");
    assert_eq!(value(&world.get_for("2", Some("two"), NOW).await.unwrap()), "Bearer t-2");
    assert_eq!(
        value(&world.get_for("3", Some("one"), NOW).await.unwrap()),
        "Bearer t-1",
        "one token per caller"
    );
    let stop = world.get_for("4", None, NOW).await.unwrap_err();
    assert!(stop.to_string().contains("no caller"), "{stop}");
    for (asked, caller) in world.asked().iter().zip(["one", "two"]) {
        assert_eq!(asked.form("grant_type").unwrap(), "urn:ietf:params:oauth:grant-type:token-exchange");
        assert_eq!(asked.form("subject_token_type").unwrap(), "urn:ietf:params:oauth:token-type:jwt");
        assert_eq!(asked.form("audience").as_deref(), Some("https://a.test"));
        assert_eq!(claims(&asked.form("subject_token").unwrap(), &public)["sub"], caller);
    }
}

/// A reload that leaves the definition as it is costs no token.
#[tokio::test]
async fn tokens_outlive_a_reload_of_the_policy() {
    let world = World::new(CLIENT, |_, _| token("t", 300));
    world.get("r", NOW).await.unwrap();
    world.get("r", NOW).await.unwrap();
    assert_eq!(world.asked().len(), 1);
    let other = World::new(&CLIENT.replace("read write", "read"), |_, _| token("t", 300));
    let name = Arc::from("c");
    assert!(!Arc::ptr_eq(&world.mints.minter(&name, &world.view), &world.mints.minter(&name, &other.view)));
}
