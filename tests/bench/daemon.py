#!/usr/bin/env python3
"""Runs at a daemon, request to answer, for each provider that starts here: built for the run, and taken from a pool.

Usage: tests/bench/daemon.py [--rounds N] [--binaries FOLDER]      after `cargo build --release`, as root

Each round asks once for each, in shuffled order, beside `bwrap … true` and `runsc do true` as whole processes; figures are medians of the
rounds and their ratios to bubblewrap within a round. Between two runs there is time to build the next one ahead: what is measured is
what a caller waits for, not what the machine can do. Before that the memory of a sandbox that waits: the proportional share of all processes
that the daemon has more with a pool of them.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
RUNSC = ["runsc", "--platform=ptrace", "--network=none", "--rootless", "do", "true"]
POOL = 4
RUN = json.dumps({"protocol": 4, "project": {"steps": ["true"]}})
# A machine that is translated takes seconds to boot.
REST_S = {"native": 0.05, "gvisor": 0.6, "microvm": 4.0}
PATIENCE_S = 120


class Daemon:
    """`sandboxd serve` with one provider."""

    def __init__(self, binaries, provider, pool):
        self.folder = tempfile.TemporaryDirectory(prefix="freeboard-bench-")
        folder = pathlib.Path(self.folder.name)
        config = folder / "freeboard.toml"
        config.write_text(f'[sandboxd]\nlisten = "127.0.0.1:0"\nproviders = ["{provider}"]\nrate_per_minute = 0\nmax_sessions = 0\n'
                          f'microvm_kvm = "/nonexistent"\n{provider}_pool = {pool}\n')
        self.log = open(folder / "log", "w")
        command = [binaries / "sandboxd", "serve", "--danger-without-tokens", "--ready-fd", "1", "--config", config]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL)
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise RuntimeError((folder / "log").read_text())
        self.address = line.split()[1]

    def run(self):
        """Milliseconds from request to answer."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        connection.connect()
        begun = time.perf_counter_ns()
        connection.request("POST", "/plimsoll.v1.SandboxService/Run", RUN, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        took = (time.perf_counter_ns() - begun) / 1e6
        connection.close()
        steps = json.loads(body).get("project", {}).get("steps", [])
        if answer.status != 200 or len(steps) != 1 or steps[0].get("exitCode", 0) != 0:
            raise RuntimeError(f"{answer.status} {body[:400]}")
        return took

    def memory_kib(self):
        """Proportional share of the daemon and everything below it."""
        children = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    children.setdefault(parent, []).append(int(entry.name))
                except (OSError, IndexError):
                    pass
        total, todo = 0, [self.process.pid]
        while todo:
            pid = todo.pop()
            todo += children.get(pid, [])
            try:
                for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
            except OSError:
                pass
        return total

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def process(command):
    begun = time.perf_counter_ns()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return (time.perf_counter_ns() - begun) / 1e6


def works(command):
    try:
        process(command)
    except subprocess.CalledProcessError as error:
        print(f"left out, it fails here: {error}", file=sys.stderr)
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--binaries", type=pathlib.Path, default=pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "release")
    asked = parser.parse_args()
    table, daemons = {}, []
    for name, command in (("bwrap", BWRAP), ("runsc do", RUNSC)):
        if shutil.which(command[0]) and works(command):
            table[name] = (lambda command=command: process(command), 0)
    for provider, rest in REST_S.items():
        try:
            fresh = Daemon(asked.binaries, provider, 0)
            daemons.append(fresh)
            before = fresh.memory_kib()
            pooled = Daemon(asked.binaries, provider, POOL)
            daemons.append(pooled)
        except RuntimeError as error:
            print(f"left out, `{provider}` does not start here: {error}", file=sys.stderr)
            continue
        time.sleep(rest * POOL)
        print(f"{provider}: a sandbox that waits takes {(pooled.memory_kib() - before) / POOL / 1024:.1f} MiB")
        table[f"{provider}, built for the run"] = (fresh.run, 0)
        table[f"{provider}, from the pool"] = (pooled.run, rest)
    times = {name: [] for name in table}
    for round_number in range(asked.rounds + 1):
        names = list(table)
        random.shuffle(names)
        for name in names:
            once, rest = table[name]
            took = once()
            # The first warms up.
            if round_number > 0:
                times[name].append(took)
            time.sleep(rest)
    for daemon in daemons:
        daemon.stop()
    for name, taken in times.items():
        ratios = [own / base for own, base in zip(taken, times.get("bwrap", taken))]
        print(f"{name:28} {statistics.median(taken):8.1f} ms   ÷ bwrap {statistics.median(ratios):6.2f}"
              f" ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
