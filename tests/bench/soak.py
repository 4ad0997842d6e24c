#!/usr/bin/env python3
"""The broker under mixed load for a long time: does anything grow, is any record lost? Started by tests/bench/soak.

Every cycle runs, beside each other, kept connections at a fixed rate, new connections, HTTP/2, large bodies, refused requests,
idle connections and clients that vanish in the middle of an answer, and the policy is reloaded meanwhile. At the end, once
everything has been left alone, what the process tree holds is compared with what it held when warm. Ends with 1 when memory,
file descriptors or threads grew, when a request that was answered has no record, or when the log does not verify.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import bench

# Cycles until caches, pools and allocator are as large as this load makes them.
WARM_CYCLES = 5
# Longer than the broker keeps an upstream connection that nothing uses (docs/reference/limits.md), so that what is compared is
# what stays.
QUIET_SECONDS = 45
# What may be more at the end than when warm: pages that an allocator keeps, descriptors of a log file that is being turned.
MEMORY_SHARE, MEMORY_MIB, DESCRIPTORS = 1.25, 4, 2

LOADS = [
    ("rate", {"connections": 8, "rate": 300, "seconds": 6}),
    ("fresh", {"connections": 1, "seconds": 2, "path": "/not-granted"}),
    ("fresh", {"connections": 2, "seconds": 0.5}),
    ("h2", {"connections": 2, "streams": 4, "seconds": 0.5}),
    ("keepalive", {"connections": 1, "seconds": 0.5, "path": bench.BIG}),
]
IDLE_CONNECTIONS = 200


def held(pid):
    """Private memory in MiB, file descriptors and threads of the process tree."""
    tree = bench.descendants(pid)
    count = lambda folder: sum(len(os.listdir(f"/proc/{one}/{folder}")) for one in tree)
    return {"mib": bench.resident_kib(pid) / 1024, "descriptors": count("fd"), "threads": count("task")}


def start(lab, tool, mode, options):
    command = bench.client(lab, tool, mode, **options)
    return subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def cycle(lab, tool, process):
    """One round of every load; requests that were answered as they should be, and those that were refused."""
    idle = start(lab, tool, "idle", {"connections": IDLE_CONNECTIONS})
    idle.stdout.readline()
    vanishing = start(lab, tool, "keepalive", {"connections": 8, "seconds": 30, "path": bench.BIG})
    running = [(options.get("path"), start(lab, tool, mode, options)) for mode, options in LOADS]
    time.sleep(1.0)
    vanishing.kill()
    os.kill(process.pid, signal.SIGHUP)
    answered = refused = 0
    for path, load in running:
        row = json.loads(load.communicate(timeout=120)[0])
        if path == "/not-granted":
            refused += row["requests"] + row["errors"]
        else:
            answered += row["injected"]
            if row["errors"]:
                print(f"warning: {row['errors']} errors, first: {row['first_error']}", file=sys.stderr)
    idle.stdin.close()
    idle.wait(30)
    vanishing.wait(30)
    return answered, refused


def records(folder):
    """Requests in the log by verdict; equal refusals of a short time are counted in one record."""
    found = {}
    for file in folder.glob("audit*.jsonl"):
        with file.open() as lines:
            for line in lines:
                record = json.loads(line)
                if record.get("of") == "request":
                    found["denied"] = found.get("denied", 0) + record["count"]
                elif verdict := record.get("verdict"):
                    found[verdict] = found.get(verdict, 0) + 1
    return found


def faults(warm, last, answered, refused, found, verified):
    if last["mib"] > warm["mib"] * MEMORY_SHARE + MEMORY_MIB:
        yield f"memory grew from {warm['mib']:.1f} to {last['mib']:.1f} MiB"
    for what in ("descriptors", "threads"):
        if last[what] > warm[what] + DESCRIPTORS:
            yield f"{what} grew from {warm[what]} to {last[what]}"
    if found.get("allowed", 0) < answered:
        yield f"{answered} requests were answered, {found.get('allowed', 0)} are recorded"
    if found.get("denied", 0) < refused:
        yield f"{refused} requests were refused, {found.get('denied', 0)} are recorded"
    if verified:
        yield f"the log does not verify: {verified}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--binaries", type=pathlib.Path, required=True)
    arguments.add_argument("--folder", type=pathlib.Path, required=True)
    arguments.add_argument("--minutes", type=float, default=30)
    options = arguments.parse_args()
    lab, tool = bench.Lab(options.folder, options.binaries), bench.Freeboard()
    process = tool.start(lab)
    answered = refused = 0
    samples = []
    try:
        bench.wait_port(3128)
        until = time.monotonic() + options.minutes * 60
        while time.monotonic() < until or len(samples) <= WARM_CYCLES:
            more = cycle(lab, tool, process)
            answered, refused = answered + more[0], refused + more[1]
            time.sleep(2.0)
            samples.append(held(process.pid))
            if len(samples) == WARM_CYCLES:
                time.sleep(QUIET_SECONDS)
                warm = held(process.pid)
            if len(samples) % 10 == 0:
                print(f"{len(samples)} cycles, {answered:,} answered, {refused:,} refused, {samples[-1]}", file=sys.stderr)
        time.sleep(QUIET_SECONDS)
        last = held(process.pid)
    finally:
        bench.stop(process)
        bench.stop(lab.up)
    folder = lab.folder / "freeboard-1/audit"
    checked = subprocess.run([options.binaries / "freeboard", "audit", "verify", "--audit", folder], capture_output=True, text=True)
    found = records(folder)
    print(f"{len(samples)} cycles, {answered:,} requests answered, {refused:,} refused; recorded: {found}")
    print(f"warm: {warm}\nlast: {last}\n{checked.stdout.strip()}")
    wrong = list(faults(warm, last, answered, refused, found, checked.stderr.strip() if checked.returncode else ""))
    print("\n".join(wrong) or "nothing grew, no record is missing")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
