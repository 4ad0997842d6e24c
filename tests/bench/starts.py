#!/usr/bin/env python3
"""Times of whole processes, spawn to exit, side by side in shuffled rounds. Started by tests/bench/starts.

Every figure is a median over the rounds with its range of the middle half, and its ratio to bubblewrap is the median of the
ratios within one round: what disturbs a round disturbs both. Everything is spawned by posix_spawn under SCHED_RR.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

HELLO = "console.log(6*7)\n"
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
# A process that takes longer than this is not compared, it hangs.
TOO_LONG_S = 30


class Broker:
    """A broker with one grant for one caller. No request is sent: only gates are opened and closed."""

    def __init__(self, binaries, folder):
        (folder / "policy").mkdir()
        (folder / "policy/bench.toml").write_text("""
[api.bench]
origins = ["https://up.test"]

[grant.bench]
callers = ["bench"]

[[grant.bench.allow]]
api = "bench"
routes = ["GET /small"]
""")
        self.socket = folder / "control.sock"
        config = folder / "freeboard.toml"
        config.write_text(f"""
[broker]
policy = "{folder}/policy"
ca_certificate = "{folder}/ca.pem"
ca_key = "{folder}/ca-key.pem"
control_socket = "{self.socket}"
user = "root"
reload_every = "off"

[broker.audit]
folder = "{folder}/audit"
""")
        broker = binaries / "freeboard"
        subprocess.run([broker, "ca", "init", "--ca-certificate", folder / "ca.pem", "--ca-key", folder / "ca-key.pem"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.log = open(folder / "broker.log", "w")
        self.process = subprocess.Popen([broker, "serve", "--config", config], stdout=self.log, stderr=self.log)
        until = time.monotonic() + 20
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the broker does not start: {(folder / 'broker.log').read_text()}")
            time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def commands(binaries, folder, broker):
    """Name and command of everything that is installed, ours first."""
    sandboxd = str(binaries / "sandboxd")
    script = folder / "a.js"
    script.write_text(HELLO)
    run = [sandboxd, "run", "--quiet"]
    to_broker = ["--broker", str(broker.socket), "--caller", "bench"]
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin") or "python3"
    table = {
        "true": ["true"],
        "bwrap true": [*BWRAP, "true"],
        "sandboxd --version": [sandboxd, "--version"],
        "sandboxd run true (no broker)": [*run, "--", "true"],
        "sandboxd run true (broker)": [*run, *to_broker, "--", "true"],
        "sandboxd run true (broker and grant)": [*run, *to_broker, "--grant", "bench", "--", "true"],
        "sandboxd run a.js": [*run, str(script)],
        "sandboxd run a.js (broker and grant)": [*run, *to_broker, "--grant", "bench", str(script)],
        "python3": [python, "-I", "-S", "-c", "0"],
        "bwrap python3": [*BWRAP, python, "-I", "-S", "-c", "0"],
        "sandboxd run python3 (no broker)": [*run, "--", python, "-I", "-S", "-c", "0"],
        "node -e": ["node", "-e", HELLO],
        "runsc do true": ["runsc", "--platform=ptrace", "--network=none", "--rootless", "do", "true"],
    }
    return {name: command for name, command in table.items() if shutil.which(command[0])}


def once(command):
    """Milliseconds from spawn to exit; None when it fails."""
    path = shutil.which(command[0])
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
               (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)]
    begun = time.perf_counter_ns()
    pid = os.posix_spawn(path, command, os.environ, file_actions=actions)
    signal.alarm(TOO_LONG_S)
    _, status = os.waitpid(pid, 0)
    took = (time.perf_counter_ns() - begun) / 1e6
    signal.alarm(0)
    return took if status == 0 else None


def measure(table, rounds):
    times = {name: [] for name in table}
    for name, command in list(table.items()):
        # Once to warm the page cache, and to see that it works at all.
        if once(command) is None:
            print(f"left out, it fails here: {name}", file=sys.stderr)
            del table[name], times[name]
    for _ in range(rounds):
        names = list(table)
        random.shuffle(names)
        for name in names:
            took = once(table[name])
            if took is None:
                sys.exit(f"{name} failed midway")
            times[name].append(took)
    return times


def report(times):
    anchors = [name for name in ("bwrap true", "true") if name in times]
    rows = []
    for name, took in times.items():
        quarters = statistics.quantiles(took, n=4)
        row = {"name": name, "ms": statistics.median(took), "ms_q1": quarters[0], "ms_q3": quarters[2]}
        for anchor in anchors:
            row[f"to {anchor}"] = statistics.median(a / b for a, b in zip(took, times[anchor]))
        rows.append(row)
    width = max(len(name) for name in times)
    print(f"{'':{width}}  {'ms':>8}  {'middle half':>16}" + "".join(f"  {'/ ' + anchor:>12}" for anchor in anchors))
    for row in rows:
        ratios = "".join(f"  {row['to ' + anchor]:12.2f}" for anchor in anchors)
        half = f"{row['ms_q1']:.2f} to {row['ms_q3']:.2f}"
        print(f"{row['name']:{width}}  {row['ms']:8.2f}  {half:>16}{ratios}")
    return rows


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--binaries", type=pathlib.Path, required=True)
    options.add_argument("--folder", type=pathlib.Path, required=True)
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--json", type=pathlib.Path)
    options.add_argument("--only", help="names, separated by commas; the anchors are always measured")
    options.add_argument("--no-cpu-quota", action="store_true", help="see tests/bench/starts")
    options = options.parse_args()
    broker = Broker(options.binaries, options.folder)
    try:
        table = commands(options.binaries, options.folder, broker)
        if options.only:
            wanted = {"true", "bwrap true", *options.only.split(",")}
            table = {name: command for name, command in table.items() if name in wanted}
        rows = report(measure(table, options.rounds))
    finally:
        broker.stop()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
