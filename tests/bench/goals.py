"""What the broker is held to: one row per goal, as ratios within a round or as figures. Used by bench.py."""

import statistics

OURS, WIDE, GATE = "freeboard", "freeboard, 10,000 grants", "freeboard, transparent"
# Share of a goal that counts as reached for now.
ENOUGH = 0.8


def dig(row, path):
    for key in path:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def ratio(one, ours, theirs, path):
    a, b = dig(one.get(ours, {}), path), dig(one.get(theirs, {}), path)
    return a / b if a and b else None


def added(one, ours, theirs, test, key):
    """What `ours` adds to the direct way, over what `theirs` adds."""
    direct, a, b = (dig(one.get(name, {}), (test, key)) for name in ("direct", ours, theirs))
    if not (direct and a and b) or b <= direct:
        return None
    return (a - direct) / (b - direct)


def median(rounds, figure):
    kept = [value for one in rounds if (value := figure(one)) is not None]
    return statistics.median(kept) if kept else None


def against(tool, *path):
    return lambda one: ratio(one, OURS, tool, path)


def figure(*path):
    return lambda one: dig(one.get(OURS, {}), path)


def new_host(one):
    hosts = dig(one.get(OURS, {}), ("hosts",))
    return hosts and (hosts["new_us"] - hosts["known_us"]) / 1000


def core_seconds_per_gigabyte(one):
    body = dig(one.get(OURS, {}), ("body", "cpu_us"))
    return body and body / 1e6 * 1e9 / (10 << 20)


TRANSPARENT_ROWS = {
    "keep-alive": ("keepalive", "cpu_us"), "new connection": ("fresh", "cpu_us"), "10 MiB": ("body", "cpu_us"),
    "HTTP/2": ("h2", "cpu_us"), "c=1 p50": ("path", "p50_us"), "idle": ("idle", "kib"),
}

# Id, what, figure of one round, goal. Everything is better when lower.
GOALS = [
    ("G1", "CPU per kept-alive 1 KiB request ÷ nginx", against("nginx", "keepalive", "cpu_us"), 0.90),
    ("G1", "the same ÷ squid ssl-bump", against("squid ssl-bump", "keepalive", "cpu_us"), 1 / 3.5),
    ("G1", "the same ÷ mitmproxy", against("mitmproxy", "keepalive", "cpu_us"), 1 / 60),
    ("G1", "the same ÷ hudsucker", against("hudsucker", "keepalive", "cpu_us"), 1 / 1.1),
    ("G2", "CPU per new connection ÷ nginx", against("nginx", "fresh", "cpu_us"), 1 / 1.8),
    ("G2", "the same ÷ mitmproxy", against("mitmproxy", "fresh", "cpu_us"), 1 / 33),
    ("G2", "the same ÷ hudsucker", against("hudsucker", "fresh", "cpu_us"), 1 / 2.6),
    ("G3", "added p50, one connection, one CPU ÷ nginx", lambda one: added(one, OURS, "nginx", "path", "p50_us"), 0.70),
    ("G3", "added p99, the same ÷ nginx", lambda one: added(one, OURS, "nginx", "path", "p99_us"), 1.00),
    ("G4", "p50 of first requests from Python ÷ direct", against("direct", "first", "p50_us"), 1.00),
    ("G4", "p99 of them, ms", lambda one: (us := figure("first", "p99_us")(one)) and us / 1000, 2.0),
    ("G5", "new host − known host, ms", new_host, 1.2),
    ("G6", "CPU per 10 MiB body ÷ nginx", against("nginx", "body", "cpu_us"), 1 / 1.35),
    ("G6", "the same ÷ squid ssl-bump", against("squid ssl-bump", "body", "cpu_us"), 1 / 3.3),
    ("G6", "the same ÷ mitmproxy", against("mitmproxy", "body", "cpu_us"), 1 / 3.3),
    ("G6", "core-seconds per GB", core_seconds_per_gigabyte, 1.0),
    ("G7", "memory when started, MiB", figure("memory_mib", "started"), 8),
    ("G7", "memory after keep-alive load, MiB", figure("memory_mib", "keepalive"), 16),
    ("G7", "memory per idle connection, KiB", figure("idle", "kib"), 12),
    ("G11", "CPU per HTTP/2 request ÷ nginx", against("nginx", "h2", "cpu_us"), 1.05),
    ("G11", "the same ÷ mitmproxy", against("mitmproxy", "h2", "cpu_us"), 1 / 80),
    *[("G12", f"transparent ÷ explicit, {name}", lambda one, path=path: ratio(one, GATE, OURS, path), 1.05)
      for name, path in TRANSPARENT_ROWS.items()],
    ("G12", "10,000 grants: added CPU, µs per request", lambda one: difference(one, WIDE, OURS, ("keepalive", "cpu_us")), 1.0),
]


# What a change must not make worse: processor time over nginx's of the same round.
KEPT = {
    "keep-alive": ("keepalive", "cpu_us"), "new connection": ("fresh", "cpu_us"), "10 MiB": ("body", "cpu_us"),
    "HTTP/2": ("h2", "cpu_us"),
}
# More than this over the stored figure is a regression. Sessions on a machine that others use differ by a tenth and more (HTTP/2: by a
# third between rounds), the best of a session's rounds by less.
WORSE = 1.25


def ratios(rounds, pick):
    """The figures of `KEPT`, as `pick` chooses from those of the rounds."""
    of = lambda path: [value for one in rounds if (value := ratio(one, OURS, "nginx", path))]
    return {name: round(pick(found), 3) for name, path in KEPT.items() if (found := of(path))}


def usual(rounds):
    """What is stored: the middle of the rounds."""
    return ratios(rounds, statistics.median)


def regressions(rounds, stored):
    """What is worse than stored, or was not measured, as lines for people. The best round counts, since what disturbs one only
    makes it worse: noise alone would have to spoil them all."""
    now = ratios(rounds, min)
    lines = []
    for name, before in stored.items():
        if name not in now:
            lines.append(f"{name}: not measured")
        elif now[name] > before * WORSE:
            lines.append(f"{name}: {now[name]:.2f} times nginx, {before:.2f} stored, more than {(WORSE - 1) * 100:.0f} % worse")
    return lines


def difference(one, a, b, path):
    a, b = dig(one.get(a, {}), path), dig(one.get(b, {}), path)
    return a - b if a and b else None


def verdict(value, goal):
    if value <= goal:
        return "met"
    return "at 0.8" if value <= goal / ENOUGH else "missed"


def report(rounds, answers):
    rows = [(id, what, median(rounds, of), goal) for id, what, of, goal in GOALS]
    firsts = [row for one in rounds if (row := dig(one.get(OURS, {}), ("first",)))]
    if firsts:
        slow, count = (sum(row[key] for row in firsts) for key in ("over_30_ms", "count"))
        rows.append(("G4", f"of {count:,} first requests above 30 ms", slow, 0))
    idle = median(rounds, figure("idle", "cpu_percent"))
    rows.append(("G7", "CPU with 1,000 idle connections, %", idle, 0))
    if answers:
        rows.append(("G8", "start to open port, ms", answers["port_us"], 5))
        rows.append(("G8", "start to first answer, ms", answers["answer_us"], 10))
    print("\n| goal | | figure | goal | |\n|---|---|---|---|---|")
    for id, what, value, goal in sorted(rows, key=lambda row: int(row[0][1:])):
        if value is not None:
            print(f"| {id} | {what} | {value:.3g} | {goal:.3g} | {verdict(value, goal)} |")
