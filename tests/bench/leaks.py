#!/usr/bin/env python3
"""Ten thousand runs in a row: what of the host is left behind? Not a part of CI: it takes minutes.

    tests/bench/leaks.py [--sandboxd target/release/sandboxd] [--wasm 10000] [--native 500]

Starts a daemon, runs a few programs so that everything which is kept on purpose is there, looks, runs the rest, looks again, and
ends with 1 when anything has grown: descriptors, processes, memory, control groups, mounts, namespaces, temporary files. Then it
ends the daemon and looks a last time. Needs root for `native` with control groups; as another user it does what it can.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

CALLERS = 4
# The daemon remembers the answers of started runs and caches within bounds; plimsoll.v1's runs leave nothing. Resident memory moves
# by what the allocator keeps: this much is no leak of ten thousand runs (a page for each would be 40 MiB).
MEMORY_SLACK_KIB = 24 << 10


def processes(root):
    """The daemon and everything below it."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def look(pid, folder):
    """What could grow. Only of this daemon: others may work on the same host."""
    tree = processes(pid)
    descriptors, memory, spaces = 0, 0, set()
    for one in tree:
        try:
            descriptors += len(os.listdir(f"/proc/{one}/fd"))
            status = pathlib.Path(f"/proc/{one}/status").read_text()
            memory += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
            spaces.update(os.readlink(f"/proc/{one}/ns/{kind}") for kind in os.listdir(f"/proc/{one}/ns"))
        except OSError:
            continue
    return {"processes": len(tree), "descriptors": descriptors, "memory_kib": memory, "namespaces": len(spaces),
            **left_behind(tree, folder)}


def left_behind(tree, folder):
    """What outlives processes: groups by their launcher, mounts, temporary files."""
    names = (os.path.basename(path) for path, _, _ in os.walk("/sys/fs/cgroup"))
    groups = sum(1 for name in names if name.startswith("run-") and name.split("-")[1] in map(str, tree))
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().count("\n")
    return {"groups": groups, "mounts": mounts, "files": sum(len(files) for _, _, files in os.walk(folder))}


def soak(address, token, payload, count):
    """Sends the same run `count` times over a few connections. Every answer must be the right one."""
    left = iter(range(count))
    lock = threading.Lock()
    body = json.dumps({"protocol": 4, **payload}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}

    def work():
        connection = http.client.HTTPConnection(address, timeout=60)
        while True:
            with lock:
                if next(left, None) is None:
                    return
            connection.request("POST", "/plimsoll.v1.SandboxService/Run", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200 or b"NDIK" not in text:
                raise SystemExit(f"HTTP {answer.status}: {text[:300]!r}")

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        for done in [pool.submit(work) for _ in range(CALLERS)]:
            done.result()
    return count / (time.monotonic() - began)


def settled(pid, folder):
    """Looks until nothing changes any more: what is removed behind an answer is removed soon."""
    before = look(pid, folder)
    for _ in range(50):
        time.sleep(0.2)
        now = look(pid, folder)
        if {**now, "memory_kib": 0} == {**before, "memory_kib": 0}:
            break
        before = now
    return now


def grown(before, after):
    slack = {"memory_kib": MEMORY_SLACK_KIB}
    return {name: (before[name], after[name]) for name in before if after[name] > before[name] + slack.get(name, 0)}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sandboxd", default="target/release/sandboxd")
    options.add_argument("--wasm", type=int, default=10_000)
    options.add_argument("--native", type=int, default=500)
    options = options.parse_args()
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        limits = f"max_concurrent = {CALLERS}\nmax_concurrent_per_caller = {CALLERS}\nrate_per_minute = 0\n"
        (at / "freeboard.toml").write_text(f'[sandboxd]\nproviders = ["wasm", "native"]\n{limits}')
        made = subprocess.run([options.sandboxd, "callers", "create", "soak", "--file", at / "callers.toml"],
                              check=True, capture_output=True, text=True)
        token, reader = made.stdout.strip(), os.pipe()
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "TMPDIR": folder}
        daemon = subprocess.Popen(
            [options.sandboxd, "serve", "--config", at / "freeboard.toml", "--callers", at / "callers.toml",
             "--listen", "127.0.0.1:0", "--ready-fd", str(reader[1])],
            pass_fds=[reader[1]], env=environment, stderr=subprocess.DEVNULL)
        os.close(reader[1])
        try:
            address = os.fdopen(reader[0]).readline().split()[1]
            snippet = {"javascript": {"code": "console.log(42)"}}
            project = {"project": {"steps": ["echo 42"]}}
            for name, payload, count in [("wasm", snippet, options.wasm), ("native", project, options.native)]:
                if count == 0:
                    continue
                soak(address, token, payload, min(count, 200))
                tree = processes(daemon.pid)
                before = settled(daemon.pid, folder)
                rate = soak(address, token, payload, count)
                after = settled(daemon.pid, folder)
                print(f"{name}: {count} runs, {rate:.0f}/s\n  before {before}\n  after  {after}")
                if grown(before, after):
                    bad = True
                    print(f"  GROWN {grown(before, after)}")
        finally:
            daemon.terminate()
            daemon.wait(60)
        left = left_behind(tree, folder)
        print(f"after the daemon {left}")
        bad |= left["groups"] > 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
