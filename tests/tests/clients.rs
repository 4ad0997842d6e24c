//! Real programs behind `native`, unmodified and without proxy variables, against real servers. Attack class H.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::process::Command;
use std::time::Duration;

use freeboard_tests::answer::Answer;
use freeboard_tests::lab::{C1, C3, Lab, POLICY};
use freeboard_tests::real::{self, git_backend, nginx, venv};
use freeboard_tests::sandbox::User;

const PYTHON: &str = "/usr/bin/python3";

/// Skips loudly where a program is missing.
fn has(program: &str) -> bool {
    let found =
        real::search_path().split(':').any(|folder| std::path::Path::new(folder).join(program).exists());
    if !found {
        eprintln!("SKIPPED: `{program}` is not installed (tests/run installs it)");
    }
    found
}

fn has_module(module: &str) -> bool {
    let found = Command::new(PYTHON)
        .args(["-c", &format!("import {module}")])
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        eprintln!("SKIPPED: Python has no `{module}` (tests/run installs it)");
    }
    found
}

#[test]
fn curl_reaches_a_granted_route_and_reads_why_another_is_refused() {
    let Some(lab) = Lab::start() else { return };
    for user in [User::Own, User::Nobody] {
        let ran = lab
            .sandbox_as(user, &["items"], &[], &["curl", "-sS", "--http1.1", "https://api.test/v1/items/1"])
            .succeeded();
        assert!(ran.stdout.contains("/v1/items/1"), "{ran:?}");
        let recorded = lab.upstream.take();
        assert_eq!(recorded[0].field("authorization").unwrap(), format!("Bearer {C1}"));
        let ran = lab.sandbox_as(
            user,
            &["items"],
            &[],
            &["curl", "-sS", "-w", "\n%{http_code}", "https://api.test/v1/admin"],
        );
        assert!(ran.stdout.contains("no_rule") && ran.stdout.ends_with("403"), "H53: {ran:?}");
        let ran = lab.sandbox_as(user, &["items"], &[], &["curl", "-sS", "https://evil.test/"]);
        assert_eq!(ran.code, Some(6), "the name does not resolve: {ran:?}");
        assert!(lab.upstream.take().is_empty());
    }
}

#[test]
fn h13_curl_speaks_http2_and_http11() {
    if !has("nginx") {
        return;
    }
    let Some(lab) = Lab::start_with(POLICY, &["pub.test"]) else { return };
    let _nginx =
        nginx(&lab, &[("pub.test", "location / { return 200 \"$server_protocol $request_uri\\n\"; }")]);
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let ran = lab
            .sandbox(&["pub"], &["curl", "-sS", flag, "-w", "%{http_version}", "https://pub.test/x?a=1"])
            .succeeded();
        assert!(ran.stdout.contains("/x?a=1") && ran.stdout.ends_with(version), "{ran:?}");
    }
    let ran = lab.sandbox(&["pub"], &["curl", "-sS", "-I", "https://pub.test/x"]).succeeded();
    assert!(ran.stdout.contains("200"), "H25: {ran:?}");
}

#[test]
fn h01_python_clients_trust_the_authority_they_are_given() {
    let Some(lab) = Lab::start() else { return };
    let programs = [
        ("urllib.request", "import urllib.request as u; print(u.urlopen('https://pub.test/x').status)"),
        (
            "requests",
            "import requests; s=requests.Session(); print([s.get('https://pub.test/x').status_code for _ in range(20)][-1])",
        ),
        ("httpx", "import httpx; print(httpx.get('https://pub.test/x').status_code)"),
        (
            "httpx",
            "import httpx,asyncio\nasync def main():\n  async with httpx.AsyncClient() as c: print((await c.get('https://pub.test/x')).status_code)\nasyncio.run(main())",
        ),
        (
            "aiohttp",
            "import aiohttp,asyncio\nasync def main():\n  async with aiohttp.ClientSession() as s:\n    async with s.get('https://pub.test/x') as r: print(r.status)\nasyncio.run(main())",
        ),
    ];
    for (module, program) in programs {
        if has_module(module) {
            let ran = lab.sandbox(&["pub"], &[PYTHON, "-c", program]).succeeded();
            assert_eq!(ran.stdout.trim(), "200", "{module}: {ran:?}");
        }
    }
}

#[test]
fn h02_the_chain_is_strict_x509() {
    let Some(lab) = Lab::start() else { return };
    let program = "import ssl,socket\n\
        c=ssl.create_default_context(); c.verify_flags|=ssl.VERIFY_X509_STRICT\n\
        s=c.wrap_socket(socket.create_connection(('pub.test',443)),server_hostname='pub.test')\n\
        print(s.version())";
    let ran = lab.sandbox(&["pub"], &[PYTHON, "-c", program]).succeeded();
    assert_eq!(ran.stdout.trim(), "TLSv1.3", "{ran:?}");
    let ran = lab.shell(&["pub"], "openssl s_client -x509_strict -verify_return_error -brief -connect pub.test:443 -servername pub.test </dev/null");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn h03_node_fetch_works_without_proxy_variables() {
    if !has("node") {
        return;
    }
    let Some(lab) = Lab::start() else { return };
    let program = "fetch('https://api.test/v1/items/7').then(async r => { console.log(r.status, await r.text()); return fetch('https://api.test/v1/admin') }).then(r => console.log(r.status))";
    let ran = lab
        .sandbox_as(User::Own, &["items"], &["--timeout", "60s"], &["/usr/bin/node", "-e", program])
        .succeeded();
    assert!(
        ran.stdout.starts_with("200")
            && ran.stdout.contains("/v1/items/7")
            && ran.stdout.trim_end().ends_with("403"),
        "{ran:?}"
    );
}

/// A program of Go's standard library, built outside and run inside.
#[test]
fn h05_go_trusts_the_authority_and_speaks_both_versions() {
    if !(has("go") && has("nginx")) {
        return;
    }
    let Some(lab) = Lab::start_with(POLICY, &["pub.test"]) else { return };
    let _nginx = nginx(&lab, &[("pub.test", "location / { return 200 \"$request_uri\"; }")]);
    let packed = go_program("client", GO_CLIENT);
    // Packed, because a file for a run may have 4 MiB.
    let file = format!("{}:client.gz", packed.display());
    let run = |user: User, arguments: &str| {
        let script = format!("gunzip client.gz && chmod +x client && ./client {arguments}");
        let more = ["--timeout", "60s", "--file", &file];
        lab.sandbox_as(user, &["pub", "items"], &more, &["/bin/sh", "-c", &script]).succeeded()
    };
    for user in [User::Own, User::Nobody] {
        let ran = run(
            user,
            "https://pub.test/x https://api.test/v1/items/7 https://api.test/v1/admin https://evil.test/",
        );
        let lines: Vec<&str> = ran.stdout.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "200 HTTP/2.0 /x", "{ran:?}");
        assert!(lines[1].starts_with("200 ") && lines[1].contains("/v1/items/7"), "{ran:?}");
        assert!(lines[2].starts_with("403 ") && lines[2].contains("no_rule"), "{ran:?}");
        assert!(lines[3].starts_with("error: ") && lines[3].contains("evil.test"), "{ran:?}");
    }
    let ran = run(User::Own, "-1 https://pub.test/x");
    assert_eq!(ran.stdout.trim(), "200 HTTP/1.1 /x", "{ran:?}");
}

const GO_CLIENT: &str = r#"package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	transport := http.DefaultTransport
	for _, word := range os.Args[1:] {
		if word == "-1" {
			transport = &http.Transport{TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
			continue
		}
		response, err := (&http.Client{Transport: transport}).Get(word)
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		body, _ := io.ReadAll(response.Body)
		fmt.Println(response.StatusCode, response.Proto, string(body))
	}
}
"#;

/// Builds a Go program once for its text, without a C library, and packs it.
fn go_program(name: &str, text: &str) -> std::path::PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.ancestors().nth(3).unwrap().join("go");
    std::fs::create_dir_all(&folder).unwrap();
    let lock = std::fs::File::create(folder.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let (source, packed) = (folder.join(format!("{name}.go")), folder.join(format!("{name}.gz")));
    if packed.exists() && std::fs::read_to_string(&source).is_ok_and(|built| built == text) {
        return packed;
    }
    std::fs::write(&source, text).unwrap();
    let script = "set -e; cd \"$1\"; go build -trimpath -ldflags '-s -w' -o \"$2\" \"$2.go\"; gzip -f \"$2\"";
    let mut build = Command::new("/bin/sh");
    build.args(["-c", script, "sh"]).arg(&folder).arg(name);
    build
        .env("PATH", real::search_path())
        .env("CGO_ENABLED", "0")
        .env("GO111MODULE", "off")
        .env("GOFLAGS", "");
    let output = build.env("GOCACHE", folder.join("cache")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    packed
}

/// GnuTLS, as Debian's wget is linked to it, and as its own client has it.
#[test]
fn h08_gnutls_accepts_the_chain() {
    let Some(lab) = Lab::start() else { return };
    if has("wget") {
        let linked = Command::new("ldd").arg("/usr/bin/wget").output().unwrap();
        assert!(String::from_utf8_lossy(&linked.stdout).contains("libgnutls"), "this wget is not of GnuTLS");
        let ran = lab.sandbox(&["items"], &["wget", "-qO-", "https://api.test/v1/items/1"]).succeeded();
        assert!(ran.stdout.contains("/v1/items/1"), "{ran:?}");
        let ran = lab.sandbox(&["items"], &["wget", "-O-", "https://api.test/v1/admin"]);
        assert!(ran.code == Some(8) && ran.stderr.contains("403"), "{ran:?}");
    }
    if has("gnutls-cli") {
        let request =
            "printf 'GET /x HTTP/1.0\\r\\nHost: pub.test\\r\\n\\r\\n' | gnutls-cli --verbose pub.test";
        let ran = lab.shell(&["pub"], request).succeeded();
        assert!(ran.stdout.contains("The certificate is trusted"), "{ran:?}");
        assert!(ran.stdout.contains("HTTP/1.1 200"), "{ran:?}");
    }
}

const JAVA_CLIENT: &str = r#"
import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] addresses) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (String address : addresses) {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(address)).build();
                HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
            } catch (java.io.IOException error) {
                System.out.println("error: " + error);
            }
        }
    }
}
"#;

/// Every JDK of the host whose trust store is where distributions put it, and one with a store of its own, which has to be told.
#[test]
fn h06_h07_java_trusts_the_authority_without_a_proxy() {
    let Some(lab) = Lab::start() else { return };
    let source = lab.folder().join("Client.java");
    std::fs::write(&source, JAVA_CLIENT).unwrap();
    let file = format!("{}:Client.java", source.display());
    let mut tried = 0;
    for entry in std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten() {
        let home = entry.path();
        if !home.join("bin/javac").exists() || entry.file_type().unwrap().is_symlink() {
            continue;
        }
        tried += 1;
        let script = format!(
            "exec {}/bin/java -Xmx128m Client.java https://pub.test/x https://api.test/v1/admin",
            home.display()
        );
        let more = ["--timeout", "120s", "--file", &file];
        let ran =
            lab.sandbox_as(User::Own, &["pub", "items"], &more, &["/bin/sh", "-c", &script]).succeeded();
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert!(
            lines[0].starts_with("200 HTTP_2 ") || lines[0].starts_with("200 HTTP_1_1 "),
            "{home:?}: {ran:?}"
        );
        assert!(lines[1].starts_with("403 ") && lines[1].contains("no_rule"), "{home:?}: {ran:?}");
        // A store of its own with another authority stands for the JDK of an archive: it fails closed until it is told.
        let script = format!(
            "set -e; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -keyout k -out c 2>/dev/null\n\
             {0}/bin/keytool -importcert -noprompt -alias x -file c -keystore own -storepass changeit 2>/dev/null\n\
             {0}/bin/java -Xmx128m -Djavax.net.ssl.trustStore=own Client.java https://pub.test/x\n\
             export JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/etc/ssl/certs/java/cacerts\n\
             {0}/bin/java -Xmx128m Client.java https://pub.test/x",
            home.display()
        );
        let ran = lab.sandbox_as(User::Own, &["pub"], &more, &["/bin/sh", "-c", &script]).succeeded();
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert!(lines[0].starts_with("error: ") && lines[0].contains("SSL"), "{home:?}: {ran:?}");
        assert!(lines[1].starts_with("200 "), "{home:?}: {ran:?}");
    }
    if tried == 0 {
        eprintln!("SKIPPED: no JDK below /usr/lib/jvm (tests/run installs one)");
    }
}

/// An Echo service with its own certificate, which asks for the token of `api.test`; `age` is how long a connection may live.
fn grpc_server(lab: &Lab, age_ms: Option<u32>) -> real::Server {
    let (certificate, key) = lab.upstream.ca().leaf_pem(&["api.test"]);
    let (certificate_path, key_path) = (lab.folder().join("grpc.pem"), lab.folder().join("grpc.key"));
    std::fs::write(&certificate_path, certificate).unwrap();
    std::fs::write(&key_path, key).unwrap();
    let server = "import grpc,sys\n\
        from concurrent import futures\n\
        def check(c):\n\
        \x20 if dict(c.invocation_metadata()).get('authorization')!='Bearer '+sys.argv[3]: c.abort(grpc.StatusCode.UNAUTHENTICATED,'no token')\n\
        def unary(r,c):\n\
        \x20 check(c)\n\
        \x20 if r==b'fail': c.abort(grpc.StatusCode.FAILED_PRECONDITION,'as asked')\n\
        \x20 return b'echo '+r\n\
        def stream(r,c):\n\
        \x20 check(c)\n\
        \x20 for n in range(3): yield r+str(n).encode()\n\
        def both(rs,c):\n\
        \x20 check(c)\n\
        \x20 for r in rs: yield b'got '+r\n\
        kinds={'/lab.Echo/Unary':grpc.unary_unary_rpc_method_handler(unary),'/lab.Echo/Stream':grpc.unary_stream_rpc_method_handler(stream),'/lab.Echo/Both':grpc.stream_stream_rpc_method_handler(both)}\n\
        class Echo(grpc.GenericRpcHandler):\n\
        \x20 def service(self,d): return kinds.get(d.method)\n\
        options=[('grpc.max_connection_age_ms',int(sys.argv[4])),('grpc.max_connection_age_grace_ms',5000)] if len(sys.argv)>4 else []\n\
        s=grpc.server(futures.ThreadPoolExecutor(8),options=options); s.add_generic_rpc_handlers((Echo(),))\n\
        s.add_secure_port('10.77.0.1:443',grpc.ssl_server_credentials([(open(sys.argv[2],'rb').read(),open(sys.argv[1],'rb').read())]))\n\
        s.start(); s.wait_for_termination()\n";
    let age = age_ms.map(|age| age.to_string());
    let mut arguments = vec![certificate_path.to_str().unwrap(), key_path.to_str().unwrap(), C1];
    arguments.extend(age.as_deref());
    real::python(lab, "echo_service", server, &arguments).wait_port(lab, "api.test", 443)
}

fn grpc_policy() -> String {
    POLICY.replace("\"POST /v1/items\",", "\"POST /v1/items\", \"POST /lab.Echo/*\",")
}

#[test]
fn h13_h14_grpc_in_all_its_shapes_with_a_token_that_the_client_does_not_have() {
    if !has_module("grpc") {
        return;
    }
    let Some(lab) = Lab::start_with(&grpc_policy(), &["api.test"]) else { return };
    let _server = grpc_server(&lab, None);
    let client = "import grpc\n\
        c=grpc.secure_channel('api.test:443',grpc.ssl_channel_credentials()); u=c.unary_unary('/lab.Echo/Unary')\n\
        print(u(b'hello',timeout=20).decode())\n\
        def failed(call):\n\
        \x20 try: call(); print('no error')\n\
        \x20 except grpc.RpcError as e: print(e.code().name,e.details())\n\
        failed(lambda: u(b'fail',timeout=20))\n\
        print(*[m.decode() for m in c.unary_stream('/lab.Echo/Stream')(b's',timeout=20)])\n\
        print(*[m.decode() for m in c.stream_stream('/lab.Echo/Both')(iter([b'a',b'b']),timeout=20)])\n\
        failed(lambda: c.unary_unary('/lab.Other/Unary')(b'x',timeout=20))\n\
        failed(lambda: c.unary_unary('/lab.Echo/None')(b'x',timeout=20))\n";
    for user in [User::Own, User::Nobody] {
        let ran =
            lab.sandbox_as(user, &["items"], &["--timeout", "60s"], &[PYTHON, "-c", client]).succeeded();
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(
            lines[..4],
            ["echo hello", "FAILED_PRECONDITION as asked", "s0 s1 s2", "got a got b"],
            "{ran:?}"
        );
        assert!(lines[4].starts_with("PERMISSION_DENIED "), "ours: {ran:?}");
        assert!(lines[5].starts_with("UNIMPLEMENTED "), "the upstream's: {ran:?}");
    }
}

/// The upstream ends its connections all the time; no call fails for it.
#[test]
fn h34_calls_go_on_over_new_connections_when_the_upstream_says_goaway() {
    if !has_module("grpc") {
        return;
    }
    let Some(lab) = Lab::start_with(&grpc_policy(), &["api.test"]) else { return };
    let _server = grpc_server(&lab, Some(100));
    let client = "import grpc,time,threading\n\
        c=grpc.secure_channel('api.test:443',grpc.ssl_channel_credentials()); u=c.unary_unary('/lab.Echo/Unary'); good=[]\n\
        def calls(name):\n\
        \x20 end=time.monotonic()+4; n=0\n\
        \x20 while time.monotonic()<end:\n\
        \x20   n+=1; r=b'%s%d'%(name,n); assert u(r,timeout=20)==b'echo '+r; good.append(1); time.sleep(0.003)\n\
        ts=[threading.Thread(target=calls,args=(b'abc'[i:i+1],)) for i in range(3)]\n\
        [t.start() for t in ts]; [t.join() for t in ts]; print(len(good))\n";
    let ran =
        lab.sandbox_as(User::Own, &["items"], &["--timeout", "60s"], &[PYTHON, "-c", client]).succeeded();
    let good: usize = ran.stdout.trim().parse().unwrap();
    assert!(good > 50 && ran.stderr.matches("Traceback").count() == 0, "{ran:?}");
    let calls: Vec<_> =
        lab.audit.records().into_iter().filter(|record| record["kind"] == "request").collect();
    assert_eq!(calls.len(), good);
    assert!(calls.iter().all(|call| call["verdict"] == "allowed"), "a call failed");
}

/// No proxy variable is set, so there is no list of exceptions to get wrong; what a program sets itself for its own services works.
#[test]
fn h36_services_of_the_sandbox_itself_are_reached_whatever_no_proxy_says() {
    let Some(lab) = Lab::start() else { return };
    let script = format!(
        "env | grep -i _proxy; echo hello > f; {PYTHON} -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &\n\
         for i in 1 2 3 4 5 6 7 8 9 10; do curl -s http://127.0.0.1:8000/f && break; sleep 0.3; done\n\
         for n in '' '*' '127.0.0.0/8' '.test' localhost; do NO_PROXY=$n no_proxy=$n curl -s http://127.0.0.1:8000/f; \
         NO_PROXY=$n no_proxy=$n curl -sS -o /dev/null -w '%{{http_code}}\\n' https://api.test/v1/items/1; done"
    );
    let ran = lab.sandbox_as(User::Own, &["items"], &["--timeout", "60s"], &["/bin/bash", "-c", &script]);
    let expected = ["hello"].into_iter().chain(["hello", "200"].into_iter().cycle().take(10));
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{ran:?}");
    assert_eq!(lab.upstream.take().len(), 5);
}

/// Scoped names of npm: the slash in a segment stays what it was.
#[test]
fn h44_an_escaped_slash_in_a_name_stays_escaped() {
    let Some(lab) = Lab::start() else { return };
    for written in ["/@scope%2fpkg", "/@scope%2Fpkg"] {
        let url = format!("https://pub.test{written}");
        lab.sandbox(&["pub"], &["curl", "-sS", "--fail", "--http1.1", &url]).succeeded();
        assert_eq!(lab.upstream.take()[0].target, written);
    }
}

/// The broker presents no certificate but a configured one, and there is none.
#[test]
fn d24_a_client_certificate_of_the_program_goes_nowhere() {
    if !has("nginx") {
        return;
    }
    let Some(lab) = Lab::start_with(POLICY, &["pub.test"]) else { return };
    let directives = "ssl_verify_client optional_no_ca; location / { return 200 \"$ssl_client_verify\"; }";
    let _nginx = nginx(&lab, &[("pub.test", directives)]);
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x -keyout k -out c 2>/dev/null; \
        curl -sS --cert c --key k https://pub.test/x";
    let ran = lab.shell(&["pub"], script).succeeded();
    assert_eq!(ran.stdout, "NONE", "{ran:?}");
}

#[test]
fn h08_h41_git_clones_with_a_credential_it_never_sees_and_may_not_push() {
    if !(has("git") && has("nginx") && has("fcgiwrap")) {
        return;
    }
    let Some(lab) = Lab::start_with(POLICY, &["git.test"]) else { return };
    let root = lab.folder().join("repositories");
    make_repository(&root.join("org/repo.git"));
    let _server = git_server(&lab, &root);
    let clone = "set -e; git clone -q https://git.test/org/repo.git r; cat r/hello; git clone -q --depth 1 https://git.test/org/repo.git s; git -C r fetch -q; git ls-remote https://git.test/org/repo.git | head -1";
    let ran =
        lab.sandbox_as(User::Own, &["git"], &["--timeout", "60s"], &["/bin/sh", "-c", clone]).succeeded();
    assert!(ran.stdout.contains("hello from the lab") && ran.stdout.contains("HEAD"), "{ran:?}");
    let push = "git clone -q https://git.test/org/repo.git r && cd r && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x && git push 2>&1";
    let ran = lab.sandbox_as(User::Own, &["git"], &["--timeout", "60s"], &["/bin/sh", "-c", push]);
    assert!(ran.code != Some(0) && ran.stdout.contains("403"), "{ran:?}");
    // A grant that allows it: the push gets through, also one larger than git's post buffer (H26).
    let pushing = POLICY.replace(
        "\"POST /org/repo.git/git-upload-pack\"]",
        "\"POST /org/repo.git/git-upload-pack\", \"GET /org/repo.git/info/refs?service!=git-receive-pack\", \"POST /org/repo.git/git-receive-pack\"]",
    ).replace("[grant.git]\ncallers = [\"lab\"]\nbudget = {", "[grant.git]\ncallers = [\"lab\"]\nbudget = { request_bytes = \"16MiB\",");
    lab.write_policy(&pushing);
    lab.broker.reload();
    let push = "git clone -q https://git.test/org/repo.git r && cd r && head -c 3000000 /dev/urandom > big && git add big && git -c user.name=x -c user.email=x@x commit -q -m big && git push -q 2>&1 && git ls-remote origin HEAD";
    let ran =
        lab.sandbox_as(User::Own, &["git"], &["--timeout", "60s"], &["/bin/sh", "-c", push]).succeeded();
    assert!(ran.stdout.contains("HEAD"), "{ran:?}");
}

/// nginx in front of git's own backend, for `git.test`; it wants the lab's credential.
fn git_server(lab: &Lab, root: &std::path::Path) -> (real::Server, real::Server) {
    let (backend, socket) = git_backend(lab);
    let password = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("robot:{C3}"));
    let directives = format!(
        "if ($http_authorization != \"Basic {password}\") {{ return 401; }}\nlocation / {{\nfastcgi_pass unix:{};\n\
         fastcgi_param SCRIPT_FILENAME /usr/lib/git-core/git-http-backend;\nfastcgi_param GIT_PROJECT_ROOT {};\n\
         fastcgi_param GIT_HTTP_EXPORT_ALL 1;\nfastcgi_param PATH_INFO $uri;\nfastcgi_param QUERY_STRING $query_string;\n\
         fastcgi_param REQUEST_METHOD $request_method;\nfastcgi_param CONTENT_TYPE $content_type;\n\
         fastcgi_param CONTENT_LENGTH $content_length;\nfastcgi_param REMOTE_USER robot;\n\
         fastcgi_param HTTP_GIT_PROTOCOL $http_git_protocol;\nfastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;\n\
         fastcgi_param GIT_CONFIG_COUNT 1;\nfastcgi_param GIT_CONFIG_KEY_0 safe.directory;\nfastcgi_param GIT_CONFIG_VALUE_0 *;\n}}",
        socket.display(),
        root.display(),
    );
    (backend, nginx(lab, &[("git.test", &directives)]))
}

/// Rules of the lab's `git` grant that look into the pkt-lines.
const GIT_RULES: &str = r#"
[grant.git]
callers = ["lab"]
budget = { calls = 100000, per_minute = 100000, concurrent = 64, request_bytes = "16MiB" }
[[grant.git.allow]]
api = "git"
routes = ["GET /org/repo.git/info/refs?service!=git-upload-pack", "POST /org/repo.git/git-upload-pack"]
git = { operation = "fetch" }
[[grant.git.allow]]
api = "git"
routes = ["GET /org/repo.git/info/refs?service!=git-receive-pack", "POST /org/repo.git/git-receive-pack"]
git = { operation = "push", refs = ["refs/heads/bot/**"], changes = ["create"], max_pack = "4MiB" }
"#;

#[test]
fn h41_a_push_reaches_only_the_refs_of_its_rule() {
    if !(has("git") && has("nginx") && has("fcgiwrap")) {
        return;
    }
    let (before, after) = (POLICY.find("[grant.git]").unwrap(), POLICY.find("[grant.reg]").unwrap());
    let policy = format!("{}{GIT_RULES}{}", &POLICY[..before], &POLICY[after..]);
    let Some(lab) = Lab::start_with(&policy, &["git.test"]) else { return };
    let root = lab.folder().join("repositories");
    let bare = root.join("org/repo.git");
    make_repository(&bare);
    let _server = git_server(&lab, &root);
    let git = |script: &str| {
        let script = format!(
            "set -e; git config --global user.name x; git config --global user.email x@x; \
             git clone -q https://git.test/org/repo.git r; cd r; {script}"
        );
        lab.sandbox_as(User::Own, &["git"], &["--timeout", "60s"], &["/bin/sh", "-c", &script])
    };
    for version in ["0", "1", "2"] {
        git(&format!("git -c protocol.version={version} fetch -q origin; cat hello")).succeeded();
    }
    // A new branch below bot/, with a pack that is larger than what is held and than git's post buffer.
    let ran = git("head -c 2500000 /dev/urandom > big; git add big; git commit -q -m big; \
                   git push -q origin HEAD:refs/heads/bot/one 2>&1");
    ran.succeeded();
    let refs = || {
        let out = Command::new("git")
            .arg("-C")
            .arg(&bare)
            .args(["-c", "safe.directory=*", "for-each-ref", "--format=%(refname) %(objectname)"])
            .output();
        String::from_utf8(out.unwrap().stdout).unwrap()
    };
    assert!(refs().contains("refs/heads/bot/one"), "{}", refs());
    let unchanged = refs();
    for (script, reason) in [
        ("git commit -q --allow-empty -m x; git push origin HEAD:refs/heads/main 2>&1", "main"),
        (
            "git commit -q --allow-empty -m x; git push origin HEAD:refs/heads/bot/two HEAD:refs/tags/v1 2>&1",
            "one of two",
        ),
        ("git commit -q --allow-empty -m x; git push -f origin HEAD:refs/heads/bot/one 2>&1", "by force"),
        (
            "git fetch -q origin refs/heads/bot/one; git checkout -q FETCH_HEAD; git commit -q --allow-empty -m x; git push origin HEAD:refs/heads/bot/one 2>&1",
            "an update",
        ),
        ("git push origin :refs/heads/bot/one 2>&1", "a deletion"),
        (
            "head -c 6000000 /dev/urandom > big; git add big; git commit -q -m big; git push origin HEAD:refs/heads/bot/big 2>&1",
            "too large",
        ),
    ] {
        let ran = git(script);
        assert!(ran.code != Some(0), "{reason}: {ran:?}");
        assert_eq!(refs(), unchanged, "{reason}: {ran:?}");
    }
}

fn make_repository(path: &std::path::Path) {
    let work = path.with_extension("work");
    let script = "set -e; git init -q -b main \"$2\"; cd \"$2\"; echo 'hello from the lab' > hello; git add hello; \
        git -c user.name=x -c user.email=x@x commit -q -m one; git clone -q --bare \"$2\" \"$1\"; \
        git -C \"$1\" config http.receivepack true; git -C \"$1\" config uploadpack.allowFilter true";
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let status = Command::new("/bin/sh").args(["-c", script, "sh"]).arg(path).arg(&work).status().unwrap();
    assert!(status.success());
}

#[test]
fn pip_installs_from_a_real_index_through_the_broker() {
    if !has("nginx") || !has_module("pip") {
        return;
    }
    let Some(venv) = venv("pypiserver", &["pypiserver==2.3.2", "setuptools", "wheel"]) else { return };
    let policy = POLICY.replace(
        "routes = [\"GET /v2/**\"]",
        "routes = [\"GET /v2/**\", \"GET /simple/**\", \"GET /packages/**\"]",
    );
    let Some(lab) = Lab::start_with(&policy, &["reg.test"]) else { return };
    let packages = lab.folder().join("packages");
    std::fs::create_dir_all(&packages).unwrap();
    build_wheel(&packages);
    let _index = real::Server::start(
        &lab,
        "pypiserver",
        Command::new(venv.join("bin/pypi-server"))
            .args(["run", "-p", "8081", "-i", "10.77.0.5", "--disable-fallback"])
            .arg(&packages),
    )
    .wait_port(&lab, "reg.test", 8081);
    let proxy = "location / { proxy_pass http://10.77.0.5:8081; proxy_set_header Host $host; }";
    let _nginx = nginx(&lab, &[("reg.test", proxy)]);
    let install = format!(
        "{PYTHON} -m pip install -q --no-cache-dir --disable-pip-version-check --target /work/t --index-url https://reg.test/simple/ labpackage && PYTHONPATH=/work/t {PYTHON} -c 'import labpackage; print(labpackage.WORD)'"
    );
    let ran =
        lab.sandbox_as(User::Own, &["reg"], &["--timeout", "120s"], &["/bin/sh", "-c", &install]).succeeded();
    assert!(ran.stdout.contains("installed through the broker"), "{ran:?}");
}

/// A wheel by hand: a zip of three files.
fn build_wheel(folder: &std::path::Path) {
    let program = "import zipfile,sys\n\
        z=zipfile.ZipFile(sys.argv[1]+'/labpackage-1.0-py3-none-any.whl','w')\n\
        z.writestr('labpackage/__init__.py','WORD=\"installed through the broker\"\\n')\n\
        z.writestr('labpackage-1.0.dist-info/METADATA','Metadata-Version: 2.1\\nName: labpackage\\nVersion: 1.0\\n')\n\
        z.writestr('labpackage-1.0.dist-info/WHEEL','Wheel-Version: 1.0\\nGenerator: lab\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        z.writestr('labpackage-1.0.dist-info/RECORD','')\n";
    let status = Command::new(PYTHON).args(["-c", program]).arg(folder).status().unwrap();
    assert!(status.success());
}

#[test]
fn h17_h20_a_websocket_carries_frames_both_ways_and_keeps_its_close_code() {
    if !has_module("websockets") {
        return;
    }
    let Some(lab) = Lab::start_with(POLICY, &["pub.test"]) else { return };
    let (certificate, key) = lab.upstream.ca().leaf_pem(&["pub.test"]);
    std::fs::write(lab.folder().join("ws.pem"), certificate + &key).unwrap();
    let server = "import asyncio,ssl,sys,websockets\n\
        async def echo(ws,path=None):\n\
        \x20 async for m in ws:\n\
        \x20   if m=='bye': await ws.close(4001,'so long')\n\
        \x20   else: await ws.send(m)\n\
        async def main():\n\
        \x20 c=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(sys.argv[1])\n\
        \x20 async with websockets.serve(echo,'10.77.0.3',443,ssl=c): await asyncio.Future()\n\
        asyncio.run(main())\n";
    let certificate = lab.folder().join("ws.pem");
    let _server =
        real::python(&lab, "ws", server, &[certificate.to_str().unwrap()]).wait_port(&lab, "pub.test", 443);
    let client = "import asyncio,websockets\n\
        async def main():\n\
        \x20 async with websockets.connect('wss://pub.test/ws/x') as ws:\n\
        \x20   await ws.send('text'); print(await ws.recv())\n\
        \x20   await ws.send(b'\\x00\\xff'*40000); print(len(await ws.recv()))\n\
        \x20   await ws.send('bye')\n\
        \x20   try: await ws.recv()\n\
        \x20   except websockets.ConnectionClosed as e: print(e.code,e.reason)\n\
        \x20 try:\n\
        \x20   async with websockets.connect('wss://pub.test/other') as ws: print('open')\n\
        \x20 except websockets.InvalidStatusCode as e: print(e.status_code)\n\
        asyncio.run(main())";
    let ran = lab.sandbox(&["pub"], &[PYTHON, "-c", client]).succeeded();
    assert_eq!(
        ran.stdout.split('\n').collect::<Vec<_>>()[..4],
        ["text", "80000", "4001 so long", "403"],
        "{ran:?}"
    );
}

#[test]
fn h22_events_arrive_as_they_are_sent() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.take_over("pub.test", "/sse", |_, stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        for turn in 0..4 {
            let event = format!("data: {turn}\n\n");
            let _ = stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
            let _ = stream.flush();
            std::thread::sleep(Duration::from_millis(300));
        }
        let _ = stream.write_all(b"0\r\n\r\n");
        let _ = stream.flush();
    });
    let program = "import urllib.request as u,time\n\
        r=u.urlopen('https://pub.test/sse'); t=[]\n\
        for l in r:\n\
        \x20 if l.strip(): t.append(time.monotonic())\n\
        print(' '.join('%d'%((b-a)*1000) for a,b in zip(t,t[1:])))";
    let ran = lab.sandbox(&["pub"], &[PYTHON, "-c", program]).succeeded();
    let gaps: Vec<u64> = ran.stdout.split_whitespace().map(|gap| gap.parse().unwrap()).collect();
    assert_eq!(gaps.len(), 3, "{ran:?}");
    assert!(gaps.iter().all(|gap| *gap > 150), "events were held back: {gaps:?}");
}

#[test]
fn e16_h26_h29_large_bodies_pass_both_ways() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.on("pub.test", "/up", |request| Answer::new(200, &[], request.body.len().to_string()));
    let big = vec![b'x'; 20 << 20];
    lab.upstream.on("pub.test", "/down", move |_| Answer::new(200, &[], &big));
    let before = high_water_kib(lab.broker.pid());
    for size in ["130k", "1M", "20M"] {
        let script = format!(
            "head -c {size} /dev/zero > f && curl -sS --http1.1 -T f https://pub.test/up && echo && curl -sS --http1.1 --data-binary @f https://pub.test/up"
        );
        let ran = lab
            .sandbox_as(User::Own, &["pub"], &["--timeout", "60s"], &["/bin/sh", "-c", &script])
            .succeeded();
        let lengths: Vec<&str> = ran.stdout.split_whitespace().collect();
        assert_eq!(lengths.len(), 2, "{ran:?}");
        assert_eq!(lengths[0], lengths[1], "{ran:?}");
    }
    let ran = lab.shell(&["pub"], "curl -sS https://pub.test/down | wc -c").succeeded();
    assert_eq!(ran.stdout.trim(), (20 << 20).to_string());
    // Three bodies of 20 MiB have passed; none was held. What pieces and the allocator's pages take is well below one.
    let grown = high_water_kib(lab.broker.pid()) - before;
    assert!(grown < 16 << 10, "the broker has grown by {grown} KiB");
}

/// The most memory that a process has had, in KiB.
fn high_water_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What a run writes is gone with it: hooks and settings that a program of the host would run later never get there.
#[test]
fn f18_nothing_that_a_run_writes_lands_on_the_host() {
    let Some(lab) = Lab::start() else { return };
    let project = lab.folder().join("project");
    std::fs::create_dir(&project).unwrap();
    let settings = project.join(".envrc");
    std::fs::write(&settings, "export A=1\n").unwrap();
    let file = format!("{}:project/.envrc", settings.display());
    let script = "set -e; cat project/.envrc; echo evil >> project/.envrc; mkdir -p project/.git/hooks project/.vscode; \
        echo '#!/bin/sh' > project/.git/hooks/post-checkout; echo '[core] fsmonitor=evil' > project/.git/config; \
        echo '{}' > project/.vscode/tasks.json; mv project moved; ln -s / project; echo done";
    let ran = lab.sandbox_as(User::Own, &[], &["--file", &file], &["/bin/sh", "-c", script]).succeeded();
    assert_eq!(ran.stdout, "export A=1\ndone\n", "{ran:?}");
    let names: Vec<_> =
        std::fs::read_dir(&project).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [".envrc"]);
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), "export A=1\n");
}

#[test]
fn h40_the_explicit_proxy_works_for_programs_that_want_one() {
    let Some(lab) = Lab::start() else { return };
    let ran = lab
        .sandbox(&["pub"], &["curl", "-sS", "-x", "http://198.18.0.1:3128", "https://pub.test/x"])
        .succeeded();
    assert!(ran.stdout.contains("pub.test"), "{ran:?}");
    let ran = lab.sandbox(&["pub"], &["curl", "-sS", "-x", "http://198.18.0.1:3128", "https://evil.test/x"]);
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("403"), "{ran:?}");
}

#[test]
fn h54_a_name_that_is_not_granted_fails_quickly() {
    let Some(lab) = Lab::start() else { return };
    let ran = lab.shell(&["items"], "getent ahosts evil.test; echo $?; getent ahosts api.test | head -1");
    assert!(ran.stdout.starts_with('2') && ran.stdout.contains("STREAM"), "{ran:?}");
    assert!(ran.time < Duration::from_secs(5), "{ran:?}");
}

#[test]
fn h61_the_first_request_after_the_start_works_every_time() {
    let Some(lab) = Lab::start() else { return };
    for _ in 0..20 {
        lab.sandbox(&["items"], &["curl", "-sS", "--fail", "https://api.test/v1/items/1"]).succeeded();
    }
}

#[test]
fn d_everything_else_that_a_program_tries_fails() {
    let Some(lab) = Lab::start() else { return };
    let script = "exec 2>&1\n\
        curl -sS -m 5 -k https://1.1.1.1/ -o /dev/null -w '%{http_code}\\n'; echo raw-address $?\n\
        curl -sS -m 5 http://169.254.169.254/latest/meta-data/ -w '%{http_code}\\n' -o /dev/null; echo metadata $?\n\
        curl -sS -m 5 http://127.0.0.1:9464/; echo loopback $?\n\
        timeout 5 git ls-remote git://git.test/x; echo git $?\n\
        (echo x >/dev/udp/1.1.1.1/443) ; echo done\n";
    let ran = lab.sandbox(&["items"], &["/bin/bash", "-c", script]);
    assert!(!ran.stdout.contains("raw-address 0\n") || ran.stdout.contains("403"), "{ran:?}");
    assert_eq!(lab.upstream.connections(), 0);
    let reasons: Vec<String> = lab
        .audit
        .records()
        .iter()
        .filter_map(|record| record["reason"].as_str().map(str::to_owned))
        .collect();
    assert!(reasons.contains(&"raw_address".to_owned()), "{reasons:?}");
}

/// Counts where `canary-c` is found: files, environments, command lines and the memory of every process but its own.
const SEARCH: &str = r"
import os,sys
word=b'can'+b'ary-c'; me=str(os.getpid()); found=[]; memory='no memory could be read'
def look(name,data):
    if word in data: found.append(name)
for top in ('/','/tmp','/work','/var','/run','/home','/root','/etc'):
    for folder,folders,files in os.walk(top):
        if folder.startswith(('/proc','/sys','/usr','/dev','/nix')): folders[:]=[]; continue
        for f in files:
            p=os.path.join(folder,f)
            try:
                if os.path.isfile(p): look(p,open(p,'rb').read(4<<20))
            except OSError: pass
for pid in filter(str.isdigit,os.listdir('/proc')):
    for f in ('environ','cmdline'):
        try: look(pid+'/'+f,open('/proc/%s/%s'%(pid,f),'rb').read())
        except OSError: pass
    if pid==me: continue
    try: maps=open('/proc/%s/maps'%pid).read().splitlines(); mem=open('/proc/%s/mem'%pid,'rb')
    except OSError: continue
    for line in maps:
        span,mode=line.split()[:2]
        if 'r' not in mode or '[v' in line: continue
        a,b=(int(x,16) for x in span.split('-'))
        try: mem.seek(a); look(pid+'/mem',mem.read(min(b-a,64<<20))); memory='memory was read'
        except (OSError,ValueError,OverflowError): pass
print(len(found),found,memory)
";

#[test]
fn c21_f13_the_secret_is_nowhere_inside_and_the_search_finds_a_planted_one() {
    let Some(lab) = Lab::start() else { return };
    // A client that holds an open connection, and answers in files, while the search goes on beside it.
    let client = "import urllib.request as u,http.client,ssl,time,sys\n\
        c=http.client.HTTPSConnection('api.test'); c.request('GET','/v1/items/1'); d=c.getresponse().read(); open('/work/a','wb').write(d)\n\
        e=u.urlopen('https://echo.test/headers').read(); open('/work/b','wb').write(e)\n\
        open('/work/ready','w').close(); time.sleep(20)";
    let search = |plant: &str| {
        let script = format!(
            "{plant} {PYTHON} -c \"$CLIENT\" & while [ ! -e /work/ready ]; do sleep 0.05; done; {PYTHON} -c \"$SEARCH\"; kill %1 2>/dev/null; exit 0"
        );
        let script = format!(
            "CLIENT='{}'; SEARCH='{}'\n{script}",
            client.replace('\'', "'\\''"),
            SEARCH.replace('\'', "'\\''")
        );
        let grants = ["items", "echo", "git", "reg"];
        lab.sandbox_as(User::Own, &grants, &["--timeout", "60s"], &["/bin/bash", "-c", &script]).succeeded()
    };
    let clean = search("");
    assert!(clean.stdout.starts_with("0 "), "{clean:?}");
    // The plants are put together at run time, so that no command line holds the word.
    let planted =
        search("p=cana; echo ${p}ry-c9-planted > /tmp/plant; (export X=${p}ry-c9-planted; exec sleep 20) &");
    assert!(
        planted.stdout.contains("/tmp/plant") && planted.stdout.contains("/environ"),
        "the search works: {planted:?}"
    );
    let memory = planted.stdout.contains("/mem'") || planted.stdout.contains("no memory could be read");
    assert!(memory, "the search of memory works where a process may read another's: {planted:?}");
}
