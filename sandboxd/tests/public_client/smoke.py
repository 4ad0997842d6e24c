import os, sys
from plimsoll_client import (Client, InsufficientIsolationError, InvalidRequestError, PlimsollError, ProtocolMismatchError,
                             SessionEndedError, SoftwareMismatchError, SoftwareRule, Workspace, PROTOCOL, RECORD_VERSION)
TIERS, bad = ["process", "container", "kernel", "vm"], []
c = Client(os.environ["PLIMSOLL_URL"], token=os.environ.get("PLIMSOLL_TOKEN"))
raw = c._transport.call  # private: sends bodies the public methods refuse to build

def check(name, ok, note=""):
    print("ok  " if ok else "FAIL", name, note)
    bad.extend([] if ok else [name])

def refused(name, cls, mark, call):
    try:
        call()
    except PlimsollError as e:
        check(name, isinstance(e, cls) and e.not_dispatched == mark, f"{type(e).__name__} {e.code} {e.not_dispatched}")
    else:
        check(name, False, "was answered")

info = c.describe()
tier, above = info.isolation, TIERS[TIERS.index(info.isolation) + 1:]
check("describe", info.protocol == PROTOCOL == RECORD_VERSION == 4, f"{info.provider} at {tier}")
r = c.run_javascript("console.log(6*7)", minimum_isolation=tier, timeout=10, trace_id="smoke-1")
check("snippet", (r.stdout, r.exit_code, r.timed_out, r.record.sequence) == (b"42\n", 0, False, 0), r.record.sha256)
r = c.run_javascript("throw new Error('x')", minimum_isolation=tier)
check("guest failure is a result", r.exit_code not in (0, 124))
r = c.run_javascript("for(;;);", timeout=1, minimum_isolation=tier)
check("deadline is a result", r.timed_out and r.exit_code == 124)
if above:
    refused("floor", InsufficientIsolationError, "isolation", lambda: c.run_javascript("1", minimum_isolation=above[0]))
refused("software", SoftwareMismatchError, "environment", lambda: c.run_javascript("1", software=SoftwareRule.exact("none:0")))
refused("protocol 3", ProtocolMismatchError, "protocol", lambda: raw("Run", {"protocol": 3, "javascript": {"code": "1"}}, "r"))
refused("no protocol", InvalidRequestError, "protocol", lambda: raw("Run", {"javascript": {"code": "1"}}, "r"))
refused("no payload", InvalidRequestError, "request", lambda: raw("Run", {"protocol": 4}, "r"))
refused("cell in Run", InvalidRequestError, "request", lambda: raw("Run", {"protocol": 4, "cell": {"language": "python", "code": "1"}}, "r"))
refused("bad body", PlimsollError, "request", lambda: raw("Run", {"protocol": "x"}, "r"))
if os.environ.get("PLIMSOLL_TOKEN"):
    refused("wrong token", PlimsollError, "permission", Client(c.base_url, token="wrong").describe)
if info.supports_project:
    p = c.run_project({"a.txt": "hi\n", "d/\u00e9.txt": ""}, ["cat a.txt", "printf '\\377' > o.bin; exit 4", "echo no"], ["o.bin", "none"], timeout=20)
    check("project", p.outcome == "completed" and [(s.stdout, s.exit_code) for s in p.steps] == [(b"hi\n", 0), (b"", 4)]
          and [(a.path, a.content) for a in p.artifacts] == [("o.bin", b"\xff")], p.detail)
if info.supports_sessions:
    lang = info.session_environment.languages[0]
    with c.open_session(minimum_isolation=tier, languages=[lang], owner="smoke", lifetime=120) as s:
        one, two = s.run_cell("x = 41", lang, files={"f.txt": "data"}), s.run_cell("x + 1", lang)
        check("cell state", two.stdout == b"42\n" and one.interpreter_started and not two.interpreter_started)
        check("files stay", s.run_project({}, ["cat f.txt"]).steps[0].stdout == b"data")
        if above:
            refused("call floor", InsufficientIsolationError, "isolation", lambda: s.run_javascript("1", minimum_isolation=above[0]))
        check("workspace", Workspace(s).exec("mkdir -p w; cd w; pwd").cwd.endswith("/w"))
        check("chain", s.calls == 4 and two.record.previous_sha256 == one.record.sha256)
    end = s.close()
    check("close", (end.calls, end.end, end.last_record_sha256) == (4, "closed", s.last_record_sha256))
    refused("after close", SessionEndedError, "request", lambda: raw("SessionRun", {"protocol": 4, "sessionId": s._id, "javascript": {"code": "1"}}, "r"))
sys.exit(f"failed: {bad}" if bad else 0)
