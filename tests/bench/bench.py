#!/usr/bin/env python3
"""The broker beside the tools that a user would pick instead, in one run. Started by tests/bench/run.

Everything is on loopback in a network namespace of its own. Proxies run on CPU 0; upstream and load generator on
CPU 1, all under SCHED_RR so that whatever else runs on the machine does not disturb. Each round starts every tool
anew in shuffled order; figures are medians over the rounds. Compare CPU microseconds per request (user and system time
of the tool's whole process tree): it is the robust figure. Added latency is measured with one connection and
everything on CPU 1 ("same core"): the cost of the path without the wake-up of a sleeping CPU.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

import freeboard_lab
import goals
from goals import added, ratio

TICK = os.sysconf("SC_CLK_TCK")
TOKEN = "bench-token-0123456789abcdef"
SMALL, BIG = "/small", "/big"
HOST = "up.test"
# Host names that nobody asked for before.
COLD_HOSTS = 40
# First requests of Python's client per tool and round: 2,000 in three rounds.
FIRST_REQUESTS = 667


def sh(*command, **options):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def descendants(pid):
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                todo += [int(child) for child in pathlib.Path(f"/proc/{one}/task/{task}/children").read_text().split()]
        except OSError:
            pass
    return found


def cpu_seconds(pid):
    total = 0
    for one in descendants(pid):
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(int(fields[place]) for place in (11, 12, 13, 14))
        except OSError:
            pass
    return total / TICK


def resident_kib(pid):
    total = 0
    for one in descendants(pid):
        try:
            for line in pathlib.Path(f"/proc/{one}/status").read_text().splitlines():
                if line.startswith("RssAnon:") or line.startswith("RssShmem:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total


def memory_mib(pid):
    """Proportional share of everything resident, code included, of the whole process tree."""
    total = 0
    for one in descendants(pid):
        try:
            for line in pathlib.Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


class Lab:
    def __init__(self, folder, binaries):
        self.folder, self.binaries = folder, binaries
        self.pki()
        (folder / "www").mkdir()
        (folder / "www/small").write_bytes(b"x" * 1024)
        (folder / "www/big").write_bytes(os.urandom(1 << 20) * 10)
        self.upstream()

    def pki(self):
        at = self.folder
        for name in ("upca", "mitm"):
            sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
               "-keyout", at / f"{name}.key", "-out", at / f"{name}.pem", "-subj", f"/CN={name}",
               "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        for name, ca in (("up", "upca"), ("front", "mitm")):
            (at / f"{name}.ext").write_text(f"subjectAltName=DNS:{HOST},DNS:*.{HOST}\nbasicConstraints=CA:FALSE\n")
            sh("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", at / f"{name}.key",
               "-out", at / f"{name}.csr", "-subj", f"/CN={HOST}")
            sh("openssl", "x509", "-req", "-in", at / f"{name}.csr", "-CA", at / f"{ca}.pem", "-CAkey", at / f"{ca}.key",
               "-CAcreateserial", "-days", "30", "-extfile", at / f"{name}.ext", "-out", at / f"{name}.pem")
        (at / "mitm-both.pem").write_text((at / "mitm.key").read_text() + (at / "mitm.pem").read_text())

    def nginx(self, name, servers):
        at = self.folder
        text = f"""daemon off; worker_processes 1; pid {at}/{name}.pid; error_log {at}/{name}.err;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 300s;
  client_body_temp_path {at}/{name}-b; proxy_temp_path {at}/{name}-p; fastcgi_temp_path {at}/{name}-f;
  uwsgi_temp_path {at}/{name}-u; scgi_temp_path {at}/{name}-s;
  {servers} }}
"""
        (at / f"{name}.conf").write_text(text)
        return ["nginx", "-e", f"{at}/{name}.err", "-c", f"{at}/{name}.conf"]

    def upstream(self):
        at = self.folder
        (at / "map").write_text("")
        command = self.nginx("upstream", f"""
  map $http_authorization $injected {{ default ""; "Bearer {TOKEN}" yes; }}
  server {{ listen 127.0.0.1:443 ssl http2 reuseport; server_name {HOST} *.{HOST}; root {at}/www;
    ssl_certificate {at}/up.pem; ssl_certificate_key {at}/up.key; ssl_protocols TLSv1.3; add_header x-injected $injected; }}""")
        self.up = spawn(command, 1)
        wait_port(443)


def pinned(cpu, command):
    return ["chrt", "-r", "1", "taskset", "-c", str(cpu), *map(str, command)]


def spawn(command, cpu, **options):
    log = options.pop("log", subprocess.DEVNULL)
    return subprocess.Popen(pinned(cpu, command), stdout=log, stderr=log, start_new_session=True, **options)


def move(pid, cpu):
    """Every thread of the tool's process tree onto one CPU."""
    for one in descendants(pid):
        sh("taskset", "-a", "-p", "-c", str(cpu), str(one))


def stop(process):
    if process is None:
        return
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            pass
        try:
            process.wait(5)
            return
        except subprocess.TimeoutExpired:
            continue


def wait_port(port, seconds=30):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.005)
    sys.exit(f"nothing listens on port {port}")


class Tool:
    # Whether it can be measured like the others, beside what every tool is.
    h2, via, authorization = True, False, None
    # What starts the load: nothing, or a way into the network namespace where the tool is reached.
    enter = []

    def address(self, host):
        """Where a client connects to for this host."""
        return self.connect

    def stop(self, process):
        stop(process)


class Direct(Tool):
    name, ca = "direct", "upca.pem"
    connect = "127.0.0.1:443"

    def start(self, lab):
        return None


class Nginx(Tool):
    name, ca = "nginx", "mitm.pem"
    connect = "127.0.0.1:8444"

    def start(self, lab):
        at = lab.folder
        return spawn(lab.nginx("front", f"""
  upstream u {{ server 127.0.0.1:443; keepalive 256; }}
  server {{ listen 127.0.0.1:8444 ssl http2; server_name {HOST} *.{HOST};
    ssl_certificate {at}/front.pem; ssl_certificate_key {at}/front.key; ssl_protocols TLSv1.2 TLSv1.3;
    location / {{ proxy_pass https://u; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host {HOST};
      proxy_set_header Authorization "Bearer {TOKEN}"; proxy_ssl_verify on; proxy_ssl_trusted_certificate {at}/upca.pem;
      proxy_ssl_server_name on; proxy_ssl_name {HOST}; proxy_ssl_protocols TLSv1.3; proxy_buffering on; proxy_max_temp_file_size 0; }} }}"""), 0)


class Squid(Tool):
    name, ca, h2 = "squid ssl-bump", "mitm.pem", False
    connect, via = "127.0.0.1:3228", True

    def start(self, lab):
        at = lab.folder
        helper = next((p for p in ("/usr/lib/squid/security_file_certgen",) if os.path.exists(p)), None)
        shutil.rmtree(at / "ssldb", ignore_errors=True)
        sh(helper, "-c", "-s", at / "ssldb", "-M", "4MB")
        sh("chown", "-R", "proxy", at / "ssldb")
        (at / "bump.conf").write_text(f"""
http_port 127.0.0.1:3228 ssl-bump tls-cert={at}/mitm-both.pem generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program {helper} -s {at}/ssldb -M 4MB
acl step1 at_step SslBump1
ssl_bump peek step1
ssl_bump bump all
tls_outgoing_options cafile={at}/upca.pem min-version=1.3
http_access allow all
cache deny all
request_header_access Authorization deny all
request_header_add Authorization "Bearer {TOKEN}" all
access_log none
cache_log /dev/null
pid_filename none
coredump_dir /
""")
        return spawn(["squid", "-N", "-f", at / "bump.conf"], 0)


class Hudsucker(Tool):
    name, ca = "hudsucker", "mitm.pem"
    connect, via = "127.0.0.1:8190", True

    def start(self, lab):
        at = lab.folder
        return spawn([lab.binaries / "hudsucker/release/bench-hudsucker", "127.0.0.1:8190", at / "mitm.pem", at / "mitm.key",
                      at / "upca.pem", TOKEN], 0)


class Mitmproxy(Tool):
    name, ca = "mitmproxy", "mitm.pem"
    connect, via = "127.0.0.1:8180", True

    def start(self, lab):
        at = lab.folder
        (at / "mitmconf").mkdir(exist_ok=True)
        (at / "mitmconf/mitmproxy-ca.pem").write_text((at / "mitm-both.pem").read_text())
        (at / "addon.py").write_text(f'def request(flow):\n    flow.request.headers["authorization"] = "Bearer {TOKEN}"\n')
        return spawn([lab.binaries / "venv/bin/mitmdump", "-q", "--mode", "regular", "--listen-host", "127.0.0.1", "-p", "8180",
                      "--set", f"confdir={at}/mitmconf", "--set", f"ssl_verify_upstream_trusted_ca={at}/upca.pem", "-s", at / "addon.py"], 0)


class Freeboard(Tool):
    """The broker with policy, injection and audit on, through its explicit door."""
    name, ca = "freeboard", "freeboard-ca.pem"
    connect, via = "127.0.0.1:3128", True
    grants = 1

    def start(self, lab):
        self.prepare(lab)
        return spawn(self.command, 0, env=self.environment, log=open(lab.folder / "freeboard.log", "ab"))

    def prepare(self, lab):
        self.command, self.control, self.authorization = freeboard_lab.prepare(lab, TOKEN, HOST, self.grants)
        self.environment = dict(os.environ, FREEBOARD_BENCH_TOKEN=TOKEN)


class FreeboardTransparent(Freeboard):
    """The same through a run's gate: the client knows of no proxy, it resolves the name and connects."""
    name, via = "freeboard, transparent", False

    def start(self, lab):
        process = super().start(lab)
        self.authorization = None
        wait_port(3128)
        names = [HOST, *(f"h{place}.{HOST}" for place in range(COLD_HOSTS))]
        command = ["unshare", "-n", lab.binaries / "freeboard-gate", self.control, "bench", "bench", *names]
        self.gate = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.gate.stdout.readline()
        if not line:
            sys.exit("the gate was not opened")
        self.addresses = json.loads(line)
        self.enter = ["nsenter", f"--net=/proc/{self.gate.pid}/ns/net"]
        return process

    def address(self, host):
        return f"{self.addresses[host]}:443"

    def stop(self, process):
        self.gate.stdin.close()
        self.gate.wait(10)
        stop(process)


class FreeboardWide(Freeboard):
    """The same with 10,000 grants in the policy."""
    name, grants = "freeboard, 10,000 grants", 10_000


def client(lab, tool, mode, host=HOST, path=SMALL, **more):
    """The command of a load."""
    command = [*tool.enter, lab.binaries / "freeboard-load", "--mode", mode, "--connect", tool.address(host), "--host", host,
               "--path", path, "--ca", lab.folder / tool.ca]
    if tool.via:
        command += ["--via", f"{host}:443"]
    if tool.authorization:
        command += ["--proxy-authorization", tool.authorization]
    for flag, value in more.items():
        command += [f"--{flag}", str(value)]
    return command


def load(lab, tool, mode, cpu=1, seconds=2.0, **more):
    command = client(lab, tool, mode, seconds=seconds, **more)
    out = subprocess.run(pinned(cpu, command), check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def measured(lab, tool, process, mode, **options):
    before = cpu_seconds(process.pid) if process else 0.0
    row = load(lab, tool, mode, **options)
    used = (cpu_seconds(process.pid) - before) if process else 0.0
    row["cpu_us"] = used * 1e6 / max(row["requests"], 1) if process else None
    if row["errors"] > row["requests"] * 0.01 or not row["requests"]:
        print(f"warning: {tool.name} {mode}: {row['errors']} errors, first: {row['first_error']}", file=sys.stderr)
    if process and row["injected"] < row["requests"] * 0.99:
        print(f"warning: {tool.name} {mode}: the credential reached the upstream in {row['injected']} of {row['requests']}", file=sys.stderr)
    return row


def idle(lab, tool, process, connections=1000):
    """What connections cost on which nothing moves: KiB of private memory each, and processor time of all."""
    before = resident_kib(process.pid)
    command = client(lab, tool, "idle", connections=connections)
    holder = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if not holder.stdout.readline():
        return {}
    time.sleep(1.0)
    after, busy = resident_kib(process.pid), cpu_seconds(process.pid)
    time.sleep(1.0)
    row = {"kib": (after - before) / connections, "cpu_percent": (cpu_seconds(process.pid) - busy) * 100}
    holder.stdin.close()
    holder.wait(30)
    return row


def moved(lab, tool, process, cpus, seconds):
    """One connection; tool, upstream and load on these CPUs."""
    for one in filter(None, (process, lab.up)):
        move(one.pid, cpus)
    try:
        return measured(lab, tool, process, "keepalive", cpu=cpus, seconds=seconds, connections=1)
    finally:
        move(lab.up.pid, 1)
        if process:
            move(process.pid, 0)


def new_hosts(lab, tool):
    """First request on a new connection to a known and to a new host name (leaf minted, new upstream connection), medians."""
    def median(host):
        rows = [load(lab, tool, "fresh", seconds=0.001, host=host(place), connections=1) for place in range(COLD_HOSTS)]
        return statistics.median(row["p50_us"] for row in rows)
    new = median(lambda place: f"h{place}.{HOST}")
    return {"new_us": new, "known_us": median(lambda _: HOST)}


def first(lab, tool, count):
    """First requests of Python's own client on new connections."""
    script = pathlib.Path(__file__).with_name("first.py")
    command = [*tool.enter, sys.executable, "-I", script, count, tool.address(HOST), HOST, SMALL, lab.folder / tool.ca]
    if tool.via:
        command.append(tool.authorization or "none")
    return json.loads(subprocess.run(pinned(1, command), check=True, stdout=subprocess.PIPE, text=True).stdout)


def first_answers(lab, tool, times=15):
    """From the start of the process to the open port, and to the first answer: medians, milliseconds."""
    tool.prepare(lab)
    rows = []
    for _ in range(times):
        command = [*client(lab, tool, "start"), "--", *tool.command]
        out = subprocess.run(pinned("0,1", command), check=True, capture_output=True, text=True, env=tool.environment).stdout
        rows.append(json.loads(out))
    return {name: statistics.median(row[name] for row in rows) / 1000 for name in ("port_us", "answer_us")}


def one_round(lab, tools, seconds):
    rows = {}
    for tool in random.sample(tools, len(tools)):
        started = time.monotonic()
        process = tool.start(lab)
        rows[tool.name] = row = {}
        try:
            if process:
                wait_port(int(tool.connect.split(":")[1]))
                row["start_ms"] = (time.monotonic() - started) * 1000
                time.sleep(0.2)
                row["memory_mib"] = {"started": memory_mib(process.pid)}
            load(lab, tool, "keepalive", seconds=0.2, connections=2)
            row["keepalive"] = measured(lab, tool, process, "keepalive", seconds=seconds, connections=16)
            if process:
                row["memory_mib"]["keepalive"] = memory_mib(process.pid)
            row["path"] = moved(lab, tool, process, "1", seconds)
            row["unpinned"] = moved(lab, tool, process, "0,1", seconds)
            row["rate"] = measured(lab, tool, process, "rate", seconds=seconds, connections=4, rate=400)
            row["fresh"] = measured(lab, tool, process, "fresh", seconds=seconds, connections=8)
            row["body"] = measured(lab, tool, process, "keepalive", path=BIG, seconds=seconds, connections=1)
            if tool.h2:
                row["h2"] = measured(lab, tool, process, "h2", seconds=seconds, connections=4, streams=8)
            row["hosts"] = new_hosts(lab, tool)
            row["first"] = first(lab, tool, FIRST_REQUESTS)
            if process:
                row["idle"] = idle(lab, tool, process)
        finally:
            tool.stop(process)
    return rows


def starts(lab, rounds):
    """Whole runs, start to finish, milliseconds: ours beside bubblewrap and node."""
    script = lab.folder / "answer.js"
    script.write_text("console.log(6*7)\n")
    sandboxd = lab.binaries / "sandboxd"
    cases = {
        "sandboxd run -- true (native)": [sandboxd, "run", "--", "true"],
        "sandboxd run answer.js (wasm)": [sandboxd, "run", script],
        "bwrap --unshare-all true": ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"],
        "node -e": ["node", "-e", "console.log(6*7)"],
        "true": ["true"],
    }
    result = {}
    for name, command in cases.items():
        if not shutil.which(str(command[0])):
            continue
        times = []
        for _ in range(rounds):
            begin = time.perf_counter()
            done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            times.append((time.perf_counter() - begin) * 1000)
            if done.returncode:
                print(f"warning: {name}: exit {done.returncode}", file=sys.stderr)
                break
        result[name] = {"p50_ms": statistics.median(times), "min_ms": min(times)}
    return result


def median_of(rounds, tool, *path):
    values = []
    for one in rounds:
        value = one.get(tool, {})
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            values.append(value)
    return statistics.median(values) if values else None


def cell(value, digits=1):
    return "–" if value is None else f"{value:,.{digits}f}"


def report(rounds, tools, start_figures):
    columns = [
        ("keep-alive rps", ("keepalive", "rps"), 0), ("CPU µs/req", ("keepalive", "cpu_us"), 1),
        ("p50 µs, c=1", ("path", "p50_us"), 0), ("p99 µs, c=1", ("path", "p99_us"), 0),
        ("p50 µs, c=1, two CPUs", ("unpinned", "p50_us"), 0),
        ("p50 µs at 400/s", ("rate", "p50_us"), 0), ("p99 µs at 400/s", ("rate", "p99_us"), 0),
        ("new conn/s", ("fresh", "rps"), 0), ("CPU µs/conn", ("fresh", "cpu_us"), 0),
        ("10 MiB MB/s", ("body", "mb_per_s"), 0), ("CPU ms/10 MiB", ("body", "cpu_us"), 1),
        ("h2 rps", ("h2", "rps"), 0), ("h2 CPU µs/req", ("h2", "cpu_us"), 1),
        ("new host µs", ("hosts", "new_us"), 0), ("known host µs", ("hosts", "known_us"), 0),
        ("Python's first p50 µs", ("first", "p50_us"), 0), ("p99 µs", ("first", "p99_us"), 0),
        ("KiB/idle conn", ("idle", "kib"), 1), ("MiB started", ("memory_mib", "started"), 1),
        ("MiB loaded", ("memory_mib", "keepalive"), 1), ("start ms", ("start_ms",), 1),
    ]
    print("| tool | " + " | ".join(name for name, _, _ in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for tool in tools:
        cells = []
        for name, path, digits in columns:
            value = median_of(rounds, tool.name, *path)
            if value is not None and name == "CPU ms/10 MiB":
                value /= 1000
            cells.append(cell(value, digits))
        print(f"| {tool.name} | " + " | ".join(cells) + " |")
    print("\nRatios in the same round, median (broker ÷ tool; below 1 is less CPU):\n")
    print("| against | keep-alive CPU | new connection CPU | 10 MiB CPU | h2 CPU | added p50, c=1 | added p99, c=1 | added p50, two CPUs | added p50, 400/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for tool in tools:
        if tool.name in ("direct", "freeboard"):
            continue
        cells = []
        for path in (("keepalive", "cpu_us"), ("fresh", "cpu_us"), ("body", "cpu_us"), ("h2", "cpu_us")):
            ratios = [ratio(one, "freeboard", tool.name, path) for one in rounds]
            cells.append(cell(statistics.median(kept), 2) if (kept := [r for r in ratios if r]) else "–")
        for test, key in (("path", "p50_us"), ("path", "p99_us"), ("unpinned", "p50_us"), ("rate", "p50_us")):
            kept = [r for one in rounds if (r := added(one, "freeboard", tool.name, test, key))]
            cells.append(cell(statistics.median(kept), 2) if kept else "–")
        print(f"| {tool.name} | " + " | ".join(cells) + " |")
    if start_figures:
        print("\n| whole run, start to finish | median ms | fastest ms |\n|---|---|---|")
        for name, row in start_figures.items():
            print(f"| `{name}` | {row['p50_ms']:.1f} | {row['min_ms']:.1f} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--binaries", type=pathlib.Path, required=True)
    arguments.add_argument("--folder", type=pathlib.Path, required=True)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=2.0)
    arguments.add_argument("--tools", default="direct,freeboard,freeboard-transparent,nginx,squid,hudsucker,mitmproxy")
    arguments.add_argument("--json", type=pathlib.Path)
    arguments.add_argument("--check", type=pathlib.Path, help="end with 1 when CPU per request over nginx's is a quarter worse than in this file")
    arguments.add_argument("--store", type=pathlib.Path, help="write the figures that --check compares")
    options = arguments.parse_args()
    known = {"direct": Direct, "freeboard": Freeboard, "freeboard-transparent": FreeboardTransparent, "freeboard-wide": FreeboardWide,
             "nginx": Nginx, "squid": Squid, "hudsucker": Hudsucker, "mitmproxy": Mitmproxy}
    tools = [known[name]() for name in options.tools.split(",")]
    lab = Lab(options.folder, options.binaries)
    rounds = []
    try:
        for place in range(options.rounds):
            print(f"round {place + 1} of {options.rounds}", file=sys.stderr)
            rounds.append(one_round(lab, tools, options.seconds))
        answers = first_answers(lab, Freeboard()) if any(tool.name == "freeboard" for tool in tools) else None
        start_figures = starts(lab, 30)
    finally:
        stop(lab.up)
    if options.json:
        options.json.write_text(json.dumps({"rounds": rounds, "answers": answers, "starts": start_figures}, indent=1))
    report(rounds, tools, start_figures)
    goals.report(rounds, answers)
    if options.store:
        options.store.write_text(json.dumps(goals.usual(rounds), indent=1) + "\n")
    if options.check:
        worse = goals.regressions(rounds, json.loads(options.check.read_text()))
        print("\n" + ("\n".join(worse) or f"not worse than {options.check}"))
        sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
