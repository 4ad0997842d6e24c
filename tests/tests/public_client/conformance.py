"""Each refusal and each limit of plimsoll.v1, and what only a session has, with the public client against a real daemon.

PLIMSOLL_TOKEN and PLIMSOLL_OTHER_TOKEN are two callers of PLIMSOLL_URL. Bodies that the client's methods refuse to build go by its
transport, which is private."""
import os, threading, time
from plimsoll_client import (AtCapacityError, CancelHandle, ChainError, Client, InsufficientIsolationError, InvalidRequestError, PlimsollError,
                             ProtocolMismatchError, RequestCanceledError, SessionEndedError, SoftwareMismatchError,
                             UnsupportedError)

url, token, other = (os.environ[name] for name in ("PLIMSOLL_URL", "PLIMSOLL_TOKEN", "PLIMSOLL_OTHER_TOKEN"))
c, stranger = Client(url, token=token), Client(url, token=other)
raw, made = c._transport.call, 0


def check(name, ok, note=""):
    global made
    made += 1
    assert ok, f"{name}: {note}"


def refused(name, cls, code, mark, call, exact=True):
    try:
        answer = call()
    except PlimsollError as e:
        seen = (type(e), e.code, e.not_dispatched)
        check(name, seen == (cls, code, mark) if exact else isinstance(e, cls), f"{seen}: {e}")
        return e
    check(name, False, f"was answered: {answer}")


def run(**more):
    return raw("Run", {"protocol": 4, **more}, "run")


JS, ONE = {"javascript": {"code": "1"}}, {"steps": ["true"]}
WRONG, SIZE = "invalid_argument", "resource_exhausted"

# Protocol, floor, rule: before anything of the payload.
refused("no number", InvalidRequestError, WRONG, "protocol", lambda: raw("Run", JS, "run"))
for number in (1, 3, 5, 4294967295):
    refused(f"protocol {number}", ProtocolMismatchError, "unimplemented", "protocol", lambda: raw("Run", {"protocol": number}, "run"))
for floor in ("none", "unknown", "Kernel", " kernel ", "strong", "vm "):
    refused(f"floor {floor}", InvalidRequestError, WRONG, "request", lambda: run(minimumIsolation=floor, **JS))
refused("too weak", InsufficientIsolationError, "failed_precondition", "isolation", lambda: run(minimumIsolation="vm", **JS))
for rule in ({"mode": "exact"}, {"identities": ["a"]}, {"mode": "exact", "identities": ["a", "b"]}, {"mode": "other", "identities": ["a"]},
             {"mode": "approved", "identities": ["a", "a"]}, {"mode": "approved", "identities": [f"i{n}" for n in range(33)]},
             {"mode": "exact", "identities": ["x" * 257]}, {"mode": "exact", "identities": ["a b"]}):
    refused(f"rule {rule['mode'] if 'mode' in rule else ''}", InvalidRequestError, WRONG, "request", lambda: run(softwareRule=rule, **JS))
refused("rule not met", SoftwareMismatchError, "failed_precondition", "environment",
        lambda: run(softwareRule={"mode": "approved", "identities": ["a:1", "b:2"]}, **JS))

# Payloads and their limits, each at the limit and one beyond it.
refused("no payload", InvalidRequestError, WRONG, "request", lambda: run())
refused("two payloads", InvalidRequestError, WRONG, "request", lambda: run(**JS, project=ONE))
refused("cell outside", InvalidRequestError, WRONG, "request", lambda: run(cell={"language": "python", "code": "1"}))
refused("module", UnsupportedError, "unimplemented", "unsupported",
        lambda: c.run_module("pendulum", [[1.0, 2.0]], end_time=1.0, step=0.5))
for name, code in (("empty", ""), ("NUL", "1\0")):
    refused(f"{name} code", InvalidRequestError, WRONG, "request", lambda: run(javascript={"code": code}))
refused("long code", InvalidRequestError, SIZE, "request", lambda: run(javascript={"code": "1" + " " * 262_144}))
check("longest code", c.run_javascript("1" + " " * 262_143).exit_code == 0)
for name, project, code in (
    ("no steps", {"steps": []}, WRONG), ("21 steps", {"steps": ["true"] * 21}, SIZE),
    ("long step", {"steps": ["#" * 16_385]}, SIZE), ("NUL step", {"steps": ["a\0"]}, WRONG),
    ("201 files", {**ONE, "files": [{"path": f"f{n}"} for n in range(201)]}, SIZE),
    ("large files", {**ONE, "files": [{"path": f"f{n}", "content": "x" * (2 << 20)} for n in range(3)]}, SIZE),
    ("same file twice", {**ONE, "files": [{"path": "a"}, {"path": "a"}]}, WRONG),
    ("101 artifacts", {**ONE, "artifacts": [f"a{n}" for n in range(101)]}, SIZE),
    ("same artifact twice", {**ONE, "artifacts": ["a", "a"]}, WRONG),
):
    refused(name, InvalidRequestError, code, "request", lambda: run(project=project))
for path in ("", "/a", "../a", "a/../b", "a//b", "./a", "a/.", "a\\b", "a\nb", "a\x7fb", "a\x85b", "x" * 1025):
    for field in ("files", "artifacts"):
        value = [{"path": path}] if field == "files" else [path]
        refused(f"path {path[:8]!r}", InvalidRequestError, WRONG, "request", lambda: run(project={**ONE, field: value}))
p = c.run_project({f"f{n}": "" for n in range(200)}, ["true"] * 19 + ["ls | wc -l"], [f"f{n}" for n in range(100)])
check("the most of everything", p.outcome == "completed" and p.steps[19].stdout == b"200\n" and len(p.artifacts) == 100, p)
p = c.run_project({".d/\u00e9": "\0"}, ["", "head -c 70000 /dev/zero", "head -c 9000000 /dev/zero > big"], ["big", ".d/\u00e9"])
check("cut and left out", p.steps[1].stdout_truncated and len(p.steps[1].stdout) == 65_536 and p.artifacts_truncated
      and [a.path for a in p.artifacts] == [".d/\u00e9"], p.outcome_detail if hasattr(p, "outcome_detail") else p)
check("a step that hangs", c.run_project({}, ["echo a", "sleep 60"], timeout=1).outcome == "timed_out")
check("time is clamped", c.run_javascript("1", timeout=86_400).exit_code == 0)
refused("long grant", InvalidRequestError, SIZE, "request", lambda: run(javascript={"code": "1", "grantProfile": "g" * 2000}))
refused("wrong token", PlimsollError, "unauthenticated", "permission", Client(url, token="wrong").describe)
refused("no token", PlimsollError, "unauthenticated", "permission", Client(url).describe)
refused("unknown procedure", UnsupportedError, "unimplemented", "unsupported", lambda: raw("Other", {}, "other"))
refused("not a message", InvalidRequestError, WRONG, "request", lambda: raw("Run", {"protocol": "x"}, "run"))
refused("over the cap", InvalidRequestError, SIZE, "request", lambda: run(javascript={"code": "x" * (9 << 20)}))

# Sessions.
info = c.describe()
check("described", info.supports_sessions and info.max_sessions_per_caller == 3 and info.max_sessions_per_owner == 2, info)
check("languages", set(info.session_environment.languages) == {"javascript", "python"}, info)
for body in ({"owner": "a b"}, {"owner": "x" * 65}, {"languages": ["ruby"]}, {"minimumIsolation": "none"}):
    refused(f"open {body}", InvalidRequestError, WRONG, "request", lambda: raw("OpenSession", {"protocol": 4, **body}, "open"))
refused("open too weak", InsufficientIsolationError, "failed_precondition", "isolation", lambda: c.open_session(minimum_isolation="vm"))


def call(session_id, **more):
    return raw("SessionRun", {"protocol": 4, "sessionId": session_id, **more}, "call")


def over(name, reason, call, code="failed_precondition"):
    e = refused(name, SessionEndedError, code, "request", call)
    check(f"{name}: reason", e.reason == reason, e.reason)


with c.open_session(lifetime=600) as s:
    for language, cells in {
        "python": ["x = [1]", "x.append(2)\nx", "import asyncio\nawait asyncio.sleep(0, 'late')"],
        "javascript": ["let x = [1]", "x.push(2); x", "await new Promise(done => setTimeout(done, 5, 'late'))"],
    }.items():
        first, second, third = (s.run_cell(code, language) for code in cells)
        check(f"{language} state", (first.interpreter_started, second.interpreter_started) == (True, False)
              and second.stdout in (b"[1, 2]\n", b"[ 1, 2 ]\n") and third.stdout == b"'late'\n", (second, third))
        raised = s.run_cell({"python": "1/0", "javascript": "null.x"}[language], language)
        check(f"{language} raises", raised.exit_code == 1 and b"Error" in raised.stderr and not raised.interpreter_ended, raised)
        spun = s.run_cell({"python": "while True: pass", "javascript": "for (;;);"}[language], language, timeout=1)
        check(f"{language} spins", spun.timed_out and spun.exit_code == 124 and spun.interpreter_ended, spun)
        check(f"{language} fresh", s.run_cell("1", language).interpreter_started)
    refused("cell files", InvalidRequestError, WRONG, "request",
            lambda: (s.run_project({}, ["mkdir -p dir"]), s.run_cell("1", "python", files={"dir": "x"})))
    check("untouched", not s.run_cell("1", "python").interpreter_started)
    refused("grant in a session", UnsupportedError, "unimplemented", "unsupported", lambda: s.run_javascript("1", grant_profile="any"))
    refused("call floor", InsufficientIsolationError, "failed_precondition", "isolation", lambda: s.run_javascript("1", minimum_isolation="vm"))
    refused("ruby", InvalidRequestError, WRONG, "request", lambda: call(s._id, cell={"language": "ruby", "code": "1"}))
    refused("empty call", InvalidRequestError, WRONG, "request", lambda: call(s._id))
    over("another caller's", "not_found", lambda: stranger._transport.call(
        "SessionRun", {"protocol": 4, "sessionId": s._id, **JS}, "call"), code="not_found")
    check("project in a session", s.run_project({"n": "1"}, ["cat n; exit 3"]).steps[0].exit_code == 3)
    check("snippet in a session", s.run_javascript("console.log(require('fs').readFileSync('n', 'utf8'))").stdout == b"1\n")
    check("its chain", s.calls == 16 and s.run_cell("2", "python").record.sequence == 17, s.calls)
end = s.close()
check("its close", (end.calls, end.end, end.last_record_sha256) == (17, "closed", s.last_record_sha256), end)
again = raw("CloseSession", {"protocol": 4, "sessionId": s._id}, "close")
check("closed twice", int(again["calls"]) == 17 if isinstance(again, dict) else True, again)
over("closed", "closed", lambda: call(s._id, **JS))
over("unknown", "not_found", lambda: call("0" * 32, **JS), code="not_found")

# Two at once, a third refused; the client's own lock is per session object, so the calls are raw.
s, results = c.open_session(), []


def slow():
    try:
        results.append(call(s._id, timeoutMs=2500, project={"steps": ["sleep 60"]}))
    except PlimsollError as e:
        results.append(e)


threads = [threading.Thread(target=slow) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
errors = [r for r in results if isinstance(r, PlimsollError)]
check("a third call", [(type(e), e.not_dispatched) for e in errors] == [(AtCapacityError, "capacity")], errors)
refused("calls by another holder of the id", ChainError, "data_loss", None, s.close)

# Caps, owners, time.
held = [c.open_session(owner="alice"), c.open_session(owner="alice"), c.open_session(owner="bob")]
refused("fourth session", AtCapacityError, SIZE, "capacity", lambda: c.open_session(owner="carol"))
held[0].run_cell("1", "python")
newer = c.open_session(owner="alice")
over("replaced", "replaced", lambda: held[1].run_cell("1", "python"))
check("not replaced", held[0].run_cell("1", "python").exit_code == 0 and newer.run_cell("1", "python").exit_code == 0)
for session in (held[0], held[2], newer): session.close()
short, unclaimed = c.open_session(lifetime=1.5), c.open_session(idle_timeout=1)
short.run_cell("1", "python")
time.sleep(3)
over("expired", "expired", lambda: short.run_cell("1", "python"))
over("unclaimed", "unclaimed", lambda: unclaimed.run_cell("1", "python"))
check("ended by itself", short.close().end == "expired" and unclaimed.close().calls == 0)
idle = c.open_session(idle_timeout=1)
idle.run_cell("x = 1", "python", files={"kept": "kept"})
time.sleep(3)
check("suspended", idle.run_cell("open('kept').read()", "python").interpreter_started and idle.run_project({}, ["cat kept"]).steps[0].stdout == b"kept")
idle.close()

# A cancelled call ends early, and is unmarked: it may have run. The session goes on for who has its id.
s, handle = c.open_session(), CancelHandle()
s.run_cell("1", "python")
threading.Timer(1, handle.cancel).start()
began = time.monotonic()
refused("cancelled", RequestCanceledError, "canceled", None, lambda: s.run_cell("import time\ntime.sleep(60)", "python", cancel=handle))
call(s._id, project={"steps": ["echo on"]})
check("goes on", time.monotonic() - began < 20)
refused("and shows in the chain", ChainError, "data_loss", None, s.close)
print(f"ok   conformance {made}")
