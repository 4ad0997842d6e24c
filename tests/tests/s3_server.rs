//! A real server of S3, IAM and STS (moto, which answers only what is signed with keys that it handed out) as upstream; boto3
//! and the command line of AWS as guests, with keys of their own invention. H49.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use freeboard_tests::canary::Canary;
use freeboard_tests::expect::{bare, with_body};
use freeboard_tests::lab::{Lab, Run, WAYS};
use freeboard_tests::real::{Server, venv};
use freeboard_tests::upstream::address_of;

const PORT: u16 = 9000;

/// Two names of one server, because what goes to one origin is signed with one credential.
const POLICY: &str = r#"
[credential.keys]
kind = "aws-sigv4"
access_key_id = { file = "FOLDER/secrets/aws-id" }
secret_access_key = { file = "FOLDER/secrets/aws-key" }
region = "eu-central-1"
service = "s3"

[credential.session]
kind = "aws-sigv4"
access_key_id = { file = "FOLDER/secrets/aws-id" }
secret_access_key = { file = "FOLDER/secrets/aws-key" }
region = "eu-central-1"
service = "s3"
role_arn = "arn:aws:iam::123456789012:role/reports"
sts_url = "https://aws.test:9000/"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.store]
origins = ["https://aws.test:9000"]
credential = "keys"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[api.reports]
origins = ["https://cdn.test:9000"]
credential = "session"
trust = { ca_file = "FOLDER/upstream-ca.pem" }
addresses = ["10.77.0.0/24"]

[grant.store]
callers = ["lab"]
budget = { request_bytes = "128MiB", response_bytes = "128MiB" }
[[grant.store.allow]]
api = "store"
routes = ["GET /bucket?*", "GET|PUT|POST /bucket/work/**?*"]

[grant.reports]
callers = ["lab"]
[[grant.reports.allow]]
api = "reports"
routes = ["GET /bucket/work/{name}"]
"#;

/// Makes the user, its keys, a role and the bucket, with the requests that moto takes unsigned; prints the keys.
const SETUP: &str = r#"
import boto3, json, sys, urllib3
urllib3.disable_warnings()
anybody = dict(endpoint_url=sys.argv[1], verify=False, region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
iam, s3 = boto3.client("iam", **anybody), boto3.client("s3", **anybody)
document = lambda *actions: json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]})
trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
iam.create_user(UserName="broker")
iam.put_user_policy(UserName="broker", PolicyName="all", PolicyDocument=document("s3:*", "sts:*"))
iam.create_role(RoleName="reports", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}))
iam.put_role_policy(RoleName="reports", PolicyName="read", PolicyDocument=document("s3:*"))
s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
keys = iam.create_access_key(UserName="broker")["AccessKey"]
print(keys["AccessKeyId"], keys["SecretAccessKey"])
"#;
/// Requests of `SETUP`; all after them must be signed.
const UNSIGNED: &str = "6";

struct World {
    lab: Lab,
    venv: PathBuf,
    server: Server,
    secret: String,
}

fn world() -> Option<World> {
    let venv = venv("moto", &["moto[s3,iam,sts,server]==5.2.5", "awscli==1.46.3"])?;
    let lab = Lab::start_with(POLICY, &["aws.test", "cdn.test"])?;
    let (certificate, key) = lab.upstream.ca().leaf_pem(&["aws.test", "cdn.test"]);
    let at = |name: &str| lab.folder().join(name).display().to_string();
    std::fs::write(at("moto.pem"), certificate).unwrap();
    std::fs::write(at("moto.key"), key).unwrap();
    let mut command = Command::new(venv.join("bin/moto_server"));
    command.args([
        "-H",
        "0.0.0.0",
        "-p",
        &PORT.to_string(),
        "-s",
        "-c",
        &at("moto.pem"),
        "-k",
        &at("moto.key"),
    ]);
    command.env("INITIAL_NO_AUTH_ACTION_COUNT", UNSIGNED).env("S3_IGNORE_SUBDOMAIN_BUCKETNAME", "true");
    let server = Server::start(&lab, "moto", &mut command).wait_port(&lab, "aws.test", PORT);
    let mut setup = Command::new(venv.join("bin/python"));
    setup.args(["-c", SETUP, &format!("https://{}:{PORT}", address_of("aws.test"))]);
    let made = lab.world().enter(|| setup.output().unwrap());
    let printed = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success(), "{printed}\n{}", String::from_utf8_lossy(&made.stderr));
    let (id, secret) = printed.trim().split_once(' ').unwrap();
    lab.secret("aws-id", id);
    lab.secret("aws-key", secret);
    let secret = secret.to_owned();
    Some(World { lab, venv, server, secret })
}

impl World {
    /// A program of the virtual environment in the run's network, with keys that nobody handed out.
    fn guest(&self, run: &Run<'_>, program: &str, arguments: &[&str]) -> Output {
        let bundle = self.lab.folder().join("guest-ca.pem");
        std::fs::write(&bundle, &run.ca_pem).unwrap();
        let mut command = Command::new(self.venv.join("bin").join(program));
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.lab.folder());
        command
            .env("AWS_CA_BUNDLE", bundle)
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_MAX_ATTEMPTS", "1");
        command.env("AWS_ACCESS_KEY_ID", "AKIAGUESTGUESTGUEST0").env("AWS_SECRET_ACCESS_KEY", "guest");
        command.env("AWS_DEFAULT_REGION", "us-east-1");
        run.gate.enter(|| command.output().unwrap())
    }

    fn says(&self, output: &Output) -> String {
        let text = format!(
            "{}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Canary::new(&self.secret).assert_absent("what a guest saw", text.as_bytes());
        text
    }
}

#[test]
fn h49_a_real_s3_server_takes_what_sdk_and_command_line_send_through_the_broker() {
    let Some(world) = world() else { return };
    let run = world.lab.run(&["store"]);
    let program = r#"
import io, os, boto3, botocore.config, botocore.exceptions
config = botocore.config.Config(s3={"addressing_style": "path"})
s3 = boto3.client("s3", endpoint_url="https://aws.test:9000", config=config)
large = os.urandom(9 << 20)
s3.put_object(Bucket="bucket", Key="work/small file (1).txt", Body=b"hello", Metadata={"one": "two  three"})
s3.upload_fileobj(io.BytesIO(large), "bucket", "work/large")
assert s3.get_object(Bucket="bucket", Key="work/large")["Body"].read() == large
got = s3.get_object(Bucket="bucket", Key="work/small file (1).txt")
print(got["Body"].read().decode(), sorted(got["Metadata"]))
print([item["Key"] for item in s3.list_objects_v2(Bucket="bucket", Prefix="work/")["Contents"]])
for refused in (lambda: s3.delete_object(Bucket="bucket", Key="work/large"), lambda: s3.put_object(Bucket="bucket", Key="other", Body=b"x")):
    try:
        refused()
        print("sent")
    except botocore.exceptions.ClientError as error:
        print(error.response["ResponseMetadata"]["HTTPStatusCode"])
"#;
    let output = world.guest(&run, "python", &["-c", program]);
    let text = world.says(&output);
    assert!(output.status.success(), "{text}\n{}", world.server.log());
    for expected in ["hello ['one']", "['work/large', 'work/small file (1).txt']", "403\n403"] {
        assert!(text.contains(expected), "{expected}: {text}\n{}", world.server.log());
    }
    assert!(!text.contains("sent"), "{text}");
    let refused = run.refusals(2);
    assert!(refused.iter().all(|record| record["credential"].is_null()), "{refused:#?}");

    // By its command line, a file in parts and a listing.
    let file = world.lab.folder().join("parts.bin");
    std::fs::write(&file, vec![7_u8; 9 << 20]).unwrap();
    let endpoint = ["--endpoint-url", "https://aws.test:9000"];
    let copy = ["s3", "cp", file.to_str().unwrap(), "s3://bucket/work/parts"];
    let output = world.guest(&run, "aws", &[&endpoint[..], &copy[..]].concat());
    assert!(output.status.success(), "{}\n{}", world.says(&output), world.server.log());
    let output = world.guest(&run, "aws", &[&endpoint[..], &["s3", "ls", "s3://bucket/work/"]].concat());
    assert!(world.says(&output).contains("9437184 parts"), "{}\n{}", world.says(&output), world.server.log());
    assert!(!world.server.log().contains("SignatureDoesNotMatch"), "{}", world.server.log());
}

#[test]
fn h49_a_real_s3_server_stores_what_came_in_signed_chunks_and_nothing_unsigned() {
    let Some(world) = world() else { return };
    let run = world.lab.run(&["store"]);
    let content = "content ".repeat(20_000);
    let mut body = String::new();
    for piece in content.as_bytes().chunks(65536) {
        let piece = std::str::from_utf8(piece).unwrap();
        write!(body, "{:x};chunk-signature={}\r\n{piece}\r\n", piece.len(), "0".repeat(64)).unwrap();
    }
    write!(body, "0;chunk-signature={}\r\n\r\n", "0".repeat(64)).unwrap();
    let length = format!("x-amz-decoded-content-length: {}", content.len());
    let fields = [
        "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        &length,
        "Content-Encoding: aws-chunked",
    ];
    for (at, way) in WAYS.into_iter().enumerate() {
        let key = format!("/bucket/work/chunks-{at}");
        let ask = |request: &[u8]| {
            let mut wire = run.tls_with(way, "aws.test", PORT, "aws.test", &[b"http/1.1"]).unwrap();
            wire.ask(request).answer()
        };
        let put = ask(with_body("PUT", "aws.test:9000", &key, &fields, &body).as_bytes());
        assert_eq!(put.status, 200, "{put:?}\n{}", world.server.log());
        let got = ask(bare("GET", "aws.test:9000", &key, &[]).as_bytes());
        assert_eq!((got.status, got.body == content.as_bytes()), (200, true), "{}", world.server.log());
    }
    // The server itself refuses what does not come through the broker: the positive control.
    let direct = format!("https://{}:{PORT}/bucket/work/chunks-0", address_of("aws.test"));
    let mut curl = Command::new("curl");
    curl.args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H"]).arg(format!(
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAGUESTGUESTGUEST0/20260101/eu-central-1/s3/aws4_request, \
         SignedHeaders=host, Signature={}",
        "0".repeat(64)
    ));
    let output = world.lab.world().enter(|| curl.arg(&direct).output().unwrap());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "403", "{}", world.server.log());
}

/// The keys only ask for a session of the role; the session signs, one for all requests of the caller.
#[test]
fn a_role_is_assumed_once_and_its_session_signs() {
    let Some(world) = world() else { return };
    let run = world.lab.run(&["store", "reports"]);
    let program = r#"
import boto3, botocore.config
config = botocore.config.Config(s3={"addressing_style": "path"})
client = lambda host: boto3.client("s3", endpoint_url=f"https://{host}:9000", config=config)
client("aws.test").put_object(Bucket="bucket", Key="work/report", Body=b"figures")
for _ in range(3):
    print(client("cdn.test").get_object(Bucket="bucket", Key="work/report")["Body"].read().decode())
"#;
    let output = world.guest(&run, "python", &["-c", program]);
    let text = world.says(&output);
    assert!(output.status.success(), "{text}\n{}", world.server.log());
    assert_eq!(text.matches("figures").count(), 3, "{text}");
    let log = world.server.log();
    // Six unsigned ones are of the setup, five of them to IAM by POST.
    let posts = log.matches("\"POST / HTTP").count();
    assert_eq!(posts, 5 + 1, "one session for three requests: {log}");
    let sent = run.decisions(4);
    let by: Vec<_> = sent.iter().filter(|record| record["credential"] == "session").collect();
    assert_eq!(by.len(), 3, "{sent:#?}");
}
