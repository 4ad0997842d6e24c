"""Configuration of the broker for the benchmarks: one run on the explicit proxy, policy, injection and audit on."""

import base64
import hashlib
import subprocess

RUN, PROXY_TOKEN = "bench", "bench-proxy-token"


def prepare(lab, token, host, grants):
    """Writes policy and configuration; the command that serves them, its control socket, and the value of Proxy-Authorization."""
    at = lab.folder / f"freeboard-{grants}"
    (at / "policy").mkdir(parents=True, exist_ok=True)
    (at / "policy/bench.toml").write_text(policy(lab, host, grants))
    (at / "token.sha256").write_text(hashlib.sha256(PROXY_TOKEN.encode()).hexdigest() + "\n")
    config = at / "freeboard.toml"
    config.write_text(f"""
[broker]
policy = "{at}/policy"
ca_certificate = "{at}/ca.pem"
ca_key = "{at}/ca-key.pem"
control_socket = "{at}/control.sock"
user = "root"
explicit_listen = "127.0.0.1:3128"
reload_every = "off"

[broker.audit]
folder = "{at}/audit"

[[broker.explicit_run]]
id = "{RUN}"
caller = "bench"
grants = ["bench"]
token_sha256_file = "{at}/token.sha256"
""")
    broker = lab.binaries / "freeboard"
    if not (at / "ca.pem").exists():
        subprocess.run([broker, "ca", "init", "--ca-certificate", at / "ca.pem", "--ca-key", at / "ca-key.pem"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (lab.folder / "freeboard-ca.pem").write_text((at / "ca.pem").read_text())
    basic = base64.b64encode(f"{RUN}:{PROXY_TOKEN}".encode()).decode()
    return [broker, "serve", "--config", config], at / "control.sock", f"Basic {basic}"


def policy(lab, host, grants):
    origins = ", ".join(f'"https://{name}"' for name in [host, *(f"h{place}.{host}" for place in range(100))])
    text = f"""
[credential.bench]
kind = "bearer"
token = {{ env = "FREEBOARD_BENCH_TOKEN" }}

[api.bench]
origins = [{origins}]
credential = "bench"
trust = {{ ca_file = "{lab.folder}/upca.pem" }}
addresses = ["127.0.0.1/32"]

[grant.bench]
callers = ["bench"]
budget = {{ calls = 1000000000, per_minute = 1000000000, concurrent = 4096, request_bytes = "1GiB", response_bytes = "1GiB" }}

[[grant.bench.allow]]
api = "bench"
routes = ["GET /small", "GET /big"]
"""
    for place in range(1, grants):
        text += f"""
[grant.other{place}]
callers = ["other"]
[[grant.other{place}.allow]]
api = "bench"
routes = ["GET /other/{place}/{{int}}"]
"""
    return text
