//! Each kind that is fetched from an issuer of its own form.

use std::path::Path;
use std::sync::Arc;

use freeboard_policy::Reason;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};

use super::minted::{Asked, NOW, World, answer, value, write};
use crate::credential::Attach;
use crate::credential::minted::IssuerAnswer;
use crate::error::Stop;

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let made = std::process::Command::new("openssl").args(arguments).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

/// An RSA key in `secret`, as an operator would make it; the public half to verify with.
fn rsa(folder: &Path) -> (String, DecodingKey) {
    let path = folder.join("key");
    let name = path.to_str().unwrap();
    openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", name]);
    let private = std::fs::read_to_string(&path).unwrap();
    write(&path, &private);
    let public = openssl(&["pkey", "-pubout", "-in", name]);
    (private, DecodingKey::from_rsa_pem(&public).unwrap())
}

fn verified(token: &str, key: &DecodingKey, audience: Option<&str>) -> Value {
    let mut validation = Validation::new(Algorithm::RS256);
    validation.validate_exp = false;
    match audience {
        Some(audience) => validation.set_audience(&[audience]),
        None => validation.validate_aud = false,
    }
    jsonwebtoken::decode::<Value>(token, key, &validation).unwrap().claims
}

const GITHUB: &str = r#"
kind = "github-app"
app_id = 12345
private_key = { file = "FOLDER/key" }
repositories = ["acme/widgets", "acme/tools"]
permissions = { issues = "write", contents = "read" }
ttl = "10m"
api_url = "https://github.test/api/v3"
"#;

/// The token endpoint with what GitHub checks and gives; `change` makes it give something else.
fn github(asked: &Asked, change: &str) -> Value {
    let sent: Value = serde_json::from_str(&asked.body).unwrap();
    let mut permissions = sent["permissions"].clone();
    permissions["metadata"] = json!("read");
    let names = sent["repositories"].as_array().unwrap();
    let mut repositories: Vec<Value> = names.iter().map(|name| json!({ "id": 1, "name": name })).collect();
    match change {
        "more" => permissions["administration"] = json!("read"),
        "higher" => permissions["contents"] = json!("write"),
        "less" => permissions["issues"] = json!("read"),
        "repository" => repositories.push(json!({ "id": 2, "name": "secrets" })),
        _ => {}
    }
    json!({
        "token": "ghs_token", "expires_at": "2027-01-15T09:00:00Z", "permissions": permissions,
        "repository_selection": if change == "all" { "all" } else { "selected" }, "repositories": repositories,
    })
}

#[tokio::test]
async fn asks_github_for_a_narrow_token_and_deletes_it_with_the_run() {
    let world = World::new(GITHUB, |asked, _| match (asked.method, asked.path.as_str()) {
        ("GET", "/api/v3/repos/acme/tools/installation") => answer(200, r#"{"id":77,"account":{}}"#),
        ("POST", "/api/v3/app/installations/77/access_tokens") => answer(201, &github(asked, "").to_string()),
        ("DELETE", "/api/v3/installation/token") => answer(204, ""),
        _ => answer(404, "{}"),
    });
    let (_, public) = rsa(world.folder.path());
    assert_eq!(value(&world.get("one", NOW).await.unwrap()), "Bearer ghs_token");
    world.get("one", NOW).await.unwrap();
    world.get("two", NOW).await.unwrap();
    let asked = world.asked();
    // The installation is looked up once; each run has a token of its own.
    assert_eq!(asked.iter().map(|asked| asked.method).collect::<Vec<_>>(), ["GET", "POST", "POST"]);
    for asked in &asked {
        let claims =
            verified(asked.field("authorization").unwrap().strip_prefix("Bearer ").unwrap(), &public, None);
        assert_eq!((claims["iss"].as_str(), claims["iat"].as_i64()), (Some("12345"), Some(NOW - 60)));
        assert!(claims["exp"].as_i64().unwrap() <= NOW + 600, "GitHub refuses more than ten minutes");
    }
    let sent: Value = serde_json::from_str(&asked[1].body).unwrap();
    assert_eq!(
        sent,
        json!({ "repositories": ["tools", "widgets"], "permissions": { "contents": "read", "issues": "write" } })
    );
    world.leases.give_back(&Arc::from("one")).await;
    let deleted = world.asked().into_iter().filter(|asked| asked.method == "DELETE").collect::<Vec<_>>();
    assert_eq!(deleted.len(), 2);
    assert_eq!(deleted[0].field("authorization"), Some("Bearer ghs_token"));
}

#[tokio::test]
async fn refuses_a_github_token_that_reaches_more_than_was_asked_for() {
    for (change, fine) in
        [("less", true), ("more", false), ("higher", false), ("repository", false), ("all", false)]
    {
        let text = format!("{GITHUB}installation_id = 77");
        let world = World::new(&text, move |asked, _| answer(201, &github(asked, change).to_string()));
        rsa(world.folder.path());
        let got = world.get("r", NOW).await;
        assert_eq!(got.is_ok(), fine, "{change}");
        if let Err(stop) = got {
            assert_eq!(stop.reason, Reason::CredentialUnavailable);
        }
    }
}

#[tokio::test]
async fn signs_an_assertion_for_a_google_service_account() {
    let text = r#"
kind = "gcp-service-account"
key = { file = "FOLDER/account" }
scopes = ["https://www.googleapis.com/auth/devstorage.read_only", "openid"]
subject = "someone@example.com"
"#;
    let world = World::new(text, |_, _| {
        answer(200, r#"{"access_token":"ya29.t","expires_in":3599,"token_type":"Bearer"}"#)
    });
    let (private, public) = rsa(world.folder.path());
    let account = json!({
        "type": "service_account", "client_email": "bot@project.iam.gserviceaccount.com", "private_key": private,
        "private_key_id": "k1", "token_uri": "https://evil.test/token",
    });
    write(&world.folder.path().join("account"), &account.to_string());
    assert_eq!(value(&world.get("r", NOW).await.unwrap()), "Bearer ya29.t");
    let asked = &world.asked()[0];
    assert_eq!((asked.issuer.as_str(), asked.path.as_str()), ("oauth2.googleapis.com", "/token"));
    assert_eq!(asked.form("grant_type").unwrap(), "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let claims =
        verified(&asked.form("assertion").unwrap(), &public, Some("https://oauth2.googleapis.com/token"));
    assert_eq!(claims["iss"], "bot@project.iam.gserviceaccount.com");
    assert_eq!(claims["sub"], "someone@example.com");
    assert_eq!(claims["scope"], "https://www.googleapis.com/auth/devstorage.read_only openid");
}

fn helper(script: &str) -> String {
    format!("kind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", '''{script}''']\n")
}

#[tokio::test]
async fn a_helper_prints_a_token_and_when_it_expires() {
    let script = r#"echo x >> FOLDER/count; printf '{"token":"t-%s","expires_in":600}' "$(wc -l < FOLDER/count | tr -d ' ')""#;
    let world = World::new(&helper(script), |_, _| panic!("no issuer"));
    assert_eq!(value(&world.get("r", NOW).await.unwrap()), "Bearer t-1");
    assert_eq!(value(&world.get("s", NOW).await.unwrap()), "Bearer t-1");
    // Its environment is clean, and its time of expiry may be a time.
    let script =
        r#"test -z "$CARGO_MANIFEST_DIR" && printf '{"token":"abc","expires_at":"2027-01-15T09:00:00Z"}'"#;
    let world = World::new(&format!("{}header = \"X-Token\"\n", helper(script)), |_, _| panic!("no issuer"));
    let material = world.get("r", NOW).await.unwrap();
    let Attach::Header { name, .. } = &material.attach else { panic!("{material:?}") };
    assert_eq!((&**name, value(&material).as_str()), ("x-token", "abc"));
    assert!(material.scrubber.contains(b"xabc"));
    for broken in [
        "echo abc-visible",
        r#"echo '{"token":"abc-visible"}'"#,
        r#"echo '{"token":"abc-visible","expires_in":0}'"#,
        r#"echo '{"token":"abc-visible","expires_at":"2020-01-01T00:00:00Z"}'"#,
        r#"echo '{"token":"abc-visible","expires_in":5,"expires_at":"2027-01-15T09:00:00Z"}'"#,
        r#"echo '{"token":"abc visible\u000d","expires_in":5}'"#,
        r#"echo '{"token":"abc-visible","expires_in":5}'; exit 1"#,
        "head -c 100000 /dev/zero",
    ] {
        let world = World::new(&helper(broken), |_, _| panic!("no issuer"));
        let stop = world.get("r", NOW).await.unwrap_err();
        assert_eq!(stop.reason, Reason::CredentialUnavailable, "{broken}");
        assert!(!stop.to_string().contains("abc"), "{stop}");
    }
}

const VAULT: &str = "kind = \"vault\"\naddress = \"https://vault.test:8200\"\n";

/// Vault's API as far as it is used; a token other than the one it gave is refused.
fn vault(asked: &Asked) -> Result<IssuerAnswer, Stop> {
    let allowed = matches!(asked.field("x-vault-token"), Some("login-1" | "s3cr3t & more"));
    match (asked.method, asked.path.as_str()) {
        ("POST", "/v1/auth/approle/login") => {
            assert_eq!(
                serde_json::from_str::<Value>(&asked.body).unwrap(),
                json!({ "role_id": "role", "secret_id": "s3cr3t & more" })
            );
            answer(200, r#"{"auth":{"client_token":"login-1","lease_duration":1200}}"#)
        }
        _ if !allowed => answer(403, r#"{"errors":["permission denied"]}"#),
        ("GET", "/v1/secret/data/app") => {
            answer(200, r#"{"data":{"data":{"token":"kv-value","n":1},"metadata":{}},"lease_duration":0}"#)
        }
        ("GET", "/v1/issuer/creds/app") => answer(
            200,
            r#"{"lease_id":"issuer/creds/app/1","lease_duration":900,"data":{"token":"dyn-value"}}"#,
        ),
        ("POST", "/v1/auth/token/revoke-self") | ("PUT", "/v1/sys/leases/revoke") => answer(204, ""),
        _ => answer(404, r#"{"errors":[]}"#),
    }
}

#[tokio::test]
async fn reads_vaults_store_and_leaves_no_login_behind() {
    let text = format!(
        "{VAULT}role_id = \"role\"\nsecret_id = {{ file = \"FOLDER/secret\" }}\nnamespace = \"team\"\npath = \"secret/data/app\"\nfield = \"token\"\n"
    );
    let world = World::new(&text, |asked, _| vault(asked));
    assert_eq!(value(&world.get("r", NOW).await.unwrap()), "Bearer kv-value");
    let paths: Vec<String> = world.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(paths, ["/v1/auth/approle/login", "/v1/secret/data/app", "/v1/auth/token/revoke-self"]);
    assert!(world.asked().iter().all(|asked| asked.field("x-vault-namespace") == Some("team")));
    let world = World::new(&text.replace("field = \"token\"", "field = \"n\""), |asked, _| vault(asked));
    assert!(world.get("r", NOW).await.unwrap_err().to_string().contains("no text `n`"));
}

#[tokio::test]
async fn a_secret_that_vault_made_belongs_to_one_run_and_ends_with_it() {
    let dynamic =
        "engine = \"dynamic\"\npath = \"issuer/creds/app\"\nfield = \"token\"\nheader = \"x-token\"\n";
    let world =
        World::new(&format!("{VAULT}token = {{ file = \"FOLDER/secret\" }}\n{dynamic}"), |asked, _| {
            vault(asked)
        });
    assert_eq!(value(&world.get("one", NOW).await.unwrap()), "dyn-value");
    world.get("two", NOW).await.unwrap();
    world.leases.give_back(&Arc::from("one")).await;
    let revoked: Vec<Asked> = world.asked().into_iter().filter(|asked| asked.method == "PUT").collect();
    assert_eq!(revoked.len(), 2);
    assert_eq!(revoked[0].body, r#"{"lease_id":"issuer/creds/app/1"}"#);

    let text = format!("{VAULT}role_id = \"role\"\nsecret_id = {{ file = \"FOLDER/secret\" }}\n{dynamic}");
    let world = World::new(&text, |asked, _| vault(asked));
    world.get("one", NOW).await.unwrap();
    world.leases.give_back(&Arc::from("one")).await;
    let last = world.asked().pop().unwrap();
    assert_eq!(
        (last.path.as_str(), last.field("x-vault-token")),
        ("/v1/auth/token/revoke-self", Some("login-1"))
    );
}

#[tokio::test]
async fn reads_keys_of_aws_apart_and_together() {
    let apart = r#"
kind = "aws-sigv4"
access_key_id = { file = "FOLDER/id" }
secret_access_key = { file = "FOLDER/key" }
session_token = { file = "FOLDER/session" }
region = "eu-central-1"
service = "s3"
"#;
    let world = World::new(apart, |_, _| panic!("no issuer"));
    for (name, content) in
        [("id", "AKIAIOSFODNN7EXAMPLE"), ("key", "aws-secret-key"), ("session", "aws-session")]
    {
        write(&world.folder.path().join(name), content);
    }
    let material = world.get("r", NOW).await.unwrap();
    assert!(matches!(material.attach, Attach::Sign(_)));
    assert!(material.scrubber.contains(b"aws-secret-key") && material.scrubber.contains(b"aws-session"));
    assert!(!format!("{material:?}").contains("aws-se"), "{material:?}");

    let together = "kind = \"aws-sigv4\"\ncredentials = { file = \"FOLDER/keys\" }\nregion = \"eu-central-1\"\nservice = \"s3\"\n";
    for (expiration, fine) in
        [("2027-01-15T09:00:00Z", true), ("2027-01-15T07:00:00Z", false), ("soon", false)]
    {
        let world = World::new(together, |_, _| panic!("no issuer"));
        let keys = json!({ "Version": 1, "AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "SecretAccessKey": "k", "SessionToken": "t", "Expiration": expiration });
        write(&world.folder.path().join("keys"), &keys.to_string());
        assert_eq!(world.get("r", NOW).await.is_ok(), fine, "{expiration}");
    }
}

const ROLE: &str = r#"
kind = "aws-sigv4"
access_key_id = { file = "FOLDER/id" }
secret_access_key = { file = "FOLDER/key" }
region = "eu-central-1"
service = "s3"
role_arn = "arn:aws:iam::123456789012:role/reports"
ttl = "15m"
sts_url = "https://sts.test:8443/"
"#;

/// The answer of AssumeRole as in its reference.
fn session(number: usize, expiration: &str) -> String {
    format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser>\
         <Arn>arn:aws:sts::123456789012:assumed-role/reports/x</Arn></AssumedRoleUser><Credentials>\
         <AccessKeyId>ASIAIOSFODNN7EXAMP{number:02}</AccessKeyId><SecretAccessKey>wJalrXUtnFEMI/K7+{number}</SecretAccessKey>\
         <SessionToken>AQoDYXdzEPT//token=={number}</SessionToken><Expiration>{expiration}</Expiration>\
         </Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
}

fn role(script: impl Fn(&Asked, usize) -> Result<IssuerAnswer, Stop> + Send + Sync + 'static) -> World {
    let world = World::new(ROLE, script);
    write(&world.folder.path().join("id"), "AKIAIOSFODNN7EXAMPLE");
    write(&world.folder.path().join("key"), "long-lived-key");
    world
}

#[tokio::test]
async fn a_role_of_aws_is_assumed_for_each_caller_and_narrowed_to_the_routes() {
    let world = role(|_, count| answer(200, &session(count, "2027-01-15T08:15:00Z")));
    let material = world.get("one", NOW).await.unwrap();
    world.get("two", NOW).await.unwrap();
    assert_eq!(world.asked().len(), 1, "runs of one caller share a session");
    let asked = &world.asked()[0];
    assert_eq!((asked.method, asked.path.as_str(), asked.issuer.as_str()), ("POST", "/", "sts.test"));
    for (name, expected) in [
        ("Action", "AssumeRole"),
        ("RoleArn", "arn:aws:iam::123456789012:role/reports"),
        ("RoleSessionName", "freeboard-bot"),
        ("DurationSeconds", "900"),
    ] {
        assert_eq!(asked.form(name).as_deref(), Some(expected), "{name}");
    }
    // The only route of the policy is `GET /x` at an origin that is no bucket's.
    let policy: Value = serde_json::from_str(&asked.form("Policy").unwrap()).unwrap();
    assert_eq!(policy["Statement"][0]["Resource"], json!(["arn:aws:s3:::x"]));
    let authorization = asked.field("authorization").unwrap();
    assert!(
        authorization.starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20270115/eu-central-1/sts/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date, Signature="
        ),
        "{authorization}"
    );
    assert_eq!(asked.field("x-amz-date"), Some("20270115T080000Z"));
    // What signs, and what is masked, is the session.
    assert!(
        material.scrubber.contains(b"wJalrXUtnFEMI/K7+1")
            && material.scrubber.contains(b"AQoDYXdzEPT//token==1")
    );
    assert!(!format!("{material:?}").contains("wJalr"), "{material:?}");

    world.get_for("three", Some("ann \u{e4}"), NOW).await.unwrap();
    assert_eq!(world.asked()[1].form("RoleSessionName").as_deref(), Some("freeboard-ann__"));
}

/// As AWS itself answers a question that accepts JSON.
#[tokio::test]
async fn a_session_may_be_json() {
    for (expiration, fine) in [
        (json!(1_800_000_900), true),
        (json!(1.800_000_9e9), true),
        (json!("2027-01-15T08:15:00Z"), true),
        (json!(1_799_999_999), false),
        (json!(-1e300), false),
        (json!(null), false),
    ] {
        let credentials = json!({
            "AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "SecretAccessKey": "session-key", "SessionToken": "session-token",
            "Expiration": expiration,
        });
        let body = json!({ "AssumeRoleResponse": { "AssumeRoleResult": { "Credentials": credentials } } });
        let world = role(move |_, _| answer(200, &body.to_string()));
        let made = world.get("r", NOW).await;
        assert_eq!(made.is_ok(), fine, "{expiration}");
        assert!(made.is_err() || made.is_ok_and(|material| material.scrubber.contains(b"session-key")));
    }
}

#[tokio::test]
async fn what_is_no_session_is_not_used() {
    let whole = session(1, "2027-01-15T08:15:00Z");
    for (status, body) in [
        (403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>".to_owned()),
        (200, "<html></html>".to_owned()),
        (200, session(1, "2027-01-15T07:00:00Z")),
        (200, whole.replace("<SessionToken>", "<Token>")),
        (200, whole.replace("K7+", "K7 <b/>")),
        (200, format!("{whole}{whole}")),
        (500, String::new()),
    ] {
        let sent = body.clone();
        let world = role(move |_, _| answer(status, &sent));
        let stop = world.get("r", NOW).await.unwrap_err();
        assert!(
            matches!(stop.reason, Reason::CredentialUnavailable | Reason::IssuerUnavailable),
            "{status} {body}: {stop}"
        );
        assert!(!stop.to_string().contains("AccessDenied"), "{stop}");
    }
}

#[tokio::test]
async fn a_client_certificate_must_be_good_and_have_its_key() {
    let text = "kind = \"mtls\"\ncertificate = { file = \"FOLDER/cert\" }\nkey = { file = \"FOLDER/key\" }\n";
    let make = |world: &World, name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(if name == "old" { 2021 } else { 2037 }, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap();
        write(&world.folder.path().join("cert"), &certificate.pem());
        write(&world.folder.path().join("key"), &key.serialize_pem());
    };
    let world = World::new(text, |_, _| panic!("no issuer"));
    make(&world, "good");
    let material = world.get("r", NOW).await.unwrap();
    assert!(material.certificate().is_some() && material.header_name().is_none());
    for spoil in ["old", "cert", "key", "other"] {
        let world = World::new(text, |_, _| panic!("no issuer"));
        make(&world, if spoil == "old" { "old" } else { "good" });
        match spoil {
            "other" => drop(write(
                &world.folder.path().join("key"),
                &rcgen::KeyPair::generate().unwrap().serialize_pem(),
            )),
            "old" => {}
            file => drop(write(&world.folder.path().join(file), "not PEM")),
        }
        assert_eq!(world.get("r", NOW).await.unwrap_err().reason, Reason::CredentialUnavailable, "{spoil}");
    }
}
