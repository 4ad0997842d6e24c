//! Requests that the broker signs in place of the guest, against a server that takes nothing which botocore would not have
//! signed. H49.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::fmt::Write as _;
use std::process::Command;

use freeboard_tests::expect::{bare, with_body};
use freeboard_tests::lab::{Lab, Run, WAYS};
use freeboard_tests::real::{Server, venv};
use freeboard_tests::upstream::address_of;

const SECRET: &str = "canary-aws-wJalrXUtnFEMI7MDENGbPxRfiCY";
const SESSION: &str = "canary-session-FwoGZXIvYXdzEBYaDK";

const POLICY: &str = r#"
[credential.s3]
kind = "aws-sigv4"
access_key_id = { file = "FOLDER/secrets/aws-id" }
secret_access_key = { file = "FOLDER/secrets/aws-key" }
session_token = { file = "FOLDER/secrets/aws-session" }
region = "eu-central-1"
service = "s3"

[credential.dynamodb]
kind = "aws-sigv4"
access_key_id = { file = "FOLDER/secrets/aws-id" }
secret_access_key = { file = "FOLDER/secrets/aws-key" }
session_token = { file = "FOLDER/secrets/aws-session" }
region = "eu-central-1"
service = "dynamodb"

[api.s3]
origins = ["https://aws.test"]
credential = "s3"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.dynamodb]
origins = ["https://aws.test:8443"]
credential = "dynamodb"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[grant.s3]
callers = ["lab"]
budget = { calls = 100000, request_bytes = "64MiB", response_bytes = "64MiB" }
[[grant.s3.allow]]
api = "s3"
routes = ["GET|HEAD|PUT /bucket/**?*"]
[[grant.s3.allow]]
api = "dynamodb"
routes = ["POST /"]
"#;

struct World {
    lab: Lab,
    venv: std::path::PathBuf,
    _servers: Vec<Server>,
}

fn world() -> Option<World> {
    let venv = venv("boto", &["boto3==1.43.11"])?;
    let lab = Lab::start_with(POLICY, &["aws.test"])?;
    for (name, secret) in [("aws-id", "AKIAIOSFODNN7EXAMPLE"), ("aws-key", SECRET), ("aws-session", SESSION)]
    {
        lab.secret(name, secret);
    }
    let (certificate, key) = lab.upstream.ca().leaf_pem(&["aws.test"]);
    let at = |name: &str| lab.folder().join(name).display().to_string();
    std::fs::write(at("aws.pem"), certificate).unwrap();
    std::fs::write(at("aws.key"), key).unwrap();
    std::fs::write(at("s3.py"), include_str!("../src/programs/s3.py")).unwrap();
    std::fs::write(at("s3.txt"), "").unwrap();
    let servers = [443_u16, 8443].map(|port| {
        let mut command = Command::new(venv.join("bin/python"));
        command.args([&at("s3.py"), &address_of("aws.test").to_string(), &port.to_string(), &at("aws.pem")]);
        command.args([
            &at("aws.key"),
            "AKIAIOSFODNN7EXAMPLE",
            SECRET,
            SESSION,
            "eu-central-1",
            &at("s3.txt"),
        ]);
        Server::start(&lab, &format!("s3-{port}"), &mut command).wait_port(&lab, "aws.test", port)
    });
    Some(World { lab, venv, _servers: servers.into_iter().collect() })
}

impl World {
    fn log(&self) -> String {
        std::fs::read_to_string(self.lab.folder().join("s3.txt")).unwrap()
    }

    fn status(&self, run: &Run<'_>, way: freeboard_tests::lab::Way, port: u16, request: &[u8]) -> u16 {
        let mut wire = run.tls_with(way, "aws.test", port, "aws.test", &[b"http/1.1"]).unwrap();
        let response = wire.ask(request).answer();
        for secret in [SECRET, SESSION] {
            freeboard_tests::canary::Canary::new(secret).assert_absent("an answer", &response.body);
        }
        response.status
    }
}

#[test]
fn h49_requests_are_signed_as_botocore_would_sign_them() {
    let Some(world) = world() else { return };
    let run = world.lab.run(&["s3"]);
    for way in WAYS {
        for target in [
            "/bucket/plain",
            "/bucket/with%20space",
            "/bucket/a/b/c.txt?partNumber=2&uploadId=x%2By%3D%3D",
            "/bucket/%E2%82%AC-sign~_.-",
            "/bucket?list-type=2&prefix=a%2Fb&delimiter=%2F&empty=",
            "/bucket/with%28signs%29%21%27%2A%3A%40",
            "/bucket/key?versions",
        ] {
            for fields in [
                &[][..],
                &[
                    "Authorization: AWS4-HMAC-SHA256 Credential=guest",
                    "X-Amz-Date: 20000101T000000Z",
                    "x-amz-meta-a: one   two",
                    "X-Amz-Meta-B: x",
                ],
            ] {
                let status = world.status(&run, way, 443, bare("GET", "aws.test", target, fields).as_bytes());
                assert!(matches!(status, 200 | 404), "{target}: {status}\n{}", world.log());
            }
        }
        // With the hash of the guest, without one, and for a service that wants one.
        let hash = "x-amz-content-sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        for fields in [&[hash][..], &[]] {
            let request = with_body("PUT", "aws.test", "/bucket/k", fields, "hello");
            assert_eq!(world.status(&run, way, 443, request.as_bytes()), 200, "{}", world.log());
        }
        let fields =
            ["Content-Type: application/x-amz-json-1.0", "X-Amz-Target: DynamoDB_20120810.ListTables"];
        let request = with_body("POST", "aws.test:8443", "/", &fields, "{\"Limit\":1}");
        assert_eq!(world.status(&run, way, 8443, request.as_bytes()), 200, "{}", world.log());
        let chunked = format!(
            "{}6\r\n{{\"Limi\r\n5\r\nt\":1}}\r\n0\r\n\r\n",
            bare("POST", "aws.test:8443", "/", &[fields[0], fields[1], "Transfer-Encoding: chunked"])
        );
        assert_eq!(world.status(&run, way, 8443, chunked.as_bytes()), 200, "{}", world.log());
    }
}

/// The guest's chunks are signed with keys that mean nothing; they arrive signed with ours.
#[test]
fn h49_signed_chunks_are_signed_anew() {
    let Some(world) = world() else { return };
    let run = world.lab.run(&["s3"]);
    let guest = "0".repeat(64);
    let content = "content ".repeat(30_000);
    for trailer in [false, true] {
        let mut body = String::new();
        for piece in content.as_bytes().chunks(65536) {
            let piece = std::str::from_utf8(piece).unwrap();
            write!(body, "{:x};chunk-signature={guest}\r\n{piece}\r\n", piece.len()).unwrap();
        }
        write!(body, "0;chunk-signature={guest}\r\n").unwrap();
        if trailer {
            write!(body, "x-amz-meta-end:1\r\nx-amz-trailer-signature:{guest}\r\n").unwrap();
        }
        body.push_str("\r\n");
        let kind = if trailer { "-TRAILER" } else { "" };
        let kind = format!("x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD{kind}");
        let length = format!("x-amz-decoded-content-length: {}", content.len());
        for way in WAYS {
            let fields = [kind.as_str(), &length, "Content-Encoding: aws-chunked"];
            let request = with_body("PUT", "aws.test", "/bucket/chunks", &fields, &body);
            assert_eq!(world.status(&run, way, 443, request.as_bytes()), 200, "{}", world.log());
            let broken = body.replacen(";chunk-signature", ";chunk-signed", 1);
            let request = with_body("PUT", "aws.test", "/bucket/broken", &fields, &broken);
            assert_eq!(world.status(&run, way, 443, request.as_bytes()), 400);
        }
    }
    let ecdsa = with_body(
        "PUT",
        "aws.test",
        "/bucket/x",
        &["x-amz-content-sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"],
        "x",
    );
    assert_eq!(world.status(&run, WAYS[0], 443, ecdsa.as_bytes()), 400);
    assert!(!world.log().contains("REFUSED"), "{}", world.log());
}

#[test]
fn h49_boto3_works_with_keys_of_its_own_invention() {
    let Some(world) = world() else { return };
    let program = r#"
import io, boto3, botocore.config
config = botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
keys = dict(aws_access_key_id="AKIAGUESTGUESTGUEST0", aws_secret_access_key="guest", region_name="us-east-1")
s3 = boto3.client("s3", endpoint_url="https://aws.test", config=config, **keys)
s3.put_object(Bucket="bucket", Key="small file.txt", Body=b"hello")
s3.put_object(Bucket="bucket", Key="a/b", Body=b"y" * 3000000, Metadata={"one": "two  three"})
s3.upload_fileobj(io.BytesIO(b"z" * 100000), "bucket", "uploaded")
print(s3.get_object(Bucket="bucket", Key="small file.txt")["Body"].read().decode())
print(len(s3.get_object(Bucket="bucket", Key="a/b")["Body"].read()))
print([o["Key"] for o in s3.list_objects_v2(Bucket="bucket", Prefix="a/")["Contents"]])
print(boto3.client("dynamodb", endpoint_url="https://aws.test:8443", **keys).list_tables()["TableNames"])
"#;
    let run = world.lab.run(&["s3"]);
    let bundle = world.lab.folder().join("guest-ca.pem");
    std::fs::write(&bundle, &run.ca_pem).unwrap();
    let mut python = Command::new(world.venv.join("bin/python"));
    python.args(["-c", program]).env_clear().env("AWS_CA_BUNDLE", bundle).env("HOME", world.lab.folder());
    python.env("AWS_EC2_METADATA_DISABLED", "true");
    // Every resolver and address is the gate's: it is dialled as a program in a sandbox would.
    let output = run.gate.enter(|| python.output().unwrap());
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stdout}\n{stderr}\n{}", world.log());
    assert!(stdout.contains("hello") && stdout.contains("3000000") && stdout.contains("['t']"), "{stdout}");
    assert!(!world.log().contains("REFUSED"), "{}", world.log());
    freeboard_tests::canary::Canary::new(SECRET).assert_absent("the guest's output", stdout.as_bytes());
}
