"""A proxy between the public client and a real daemon that changes one thing of an answer: the client must notice each."""
import base64, http.client, json, os, re, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit
from plimsoll_client import Client, PlimsollError

upstream = urlsplit(os.environ["PLIMSOLL_URL"])
ID = "Plimsoll-Request-Id"
state = {"tamper": None, "stored": None}


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        link = http.client.HTTPConnection(upstream.hostname, upstream.port)
        link.request("POST", self.path, body, {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")})
        answer = link.getresponse()
        reply = {"status": answer.status, "headers": [(k, v) for k, v in answer.getheaders() if k.lower() not in ("content-length", "date")],
                 "body": answer.read()}
        if state["tamper"]:
            reply = state["tamper"](self.path.rsplit("/", 1)[1], reply) or reply
        self.send_response(reply["status"])
        for name, value in reply["headers"]: self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply["body"])))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply["body"])
        self.close_connection = True

    def log_message(self, *_): pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=server.serve_forever, daemon=True).start()
c = Client(f"http://127.0.0.1:{server.server_port}", token=os.environ["PLIMSOLL_TOKEN"])
made = 0


def edit(procedure, change):
    def tamper(of, reply):
        if of == procedure and reply["status"] == 200:
            message = json.loads(reply["body"])
            change(message)
            reply["body"] = json.dumps(message).encode()
        return reply
    return tamper


def headers(change):
    def tamper(_, reply):
        reply["headers"] = change(reply["headers"])
        return reply
    return tamper


def noticed(name, cls, tamper, call, mark=None):
    global made
    made += 1
    state["tamper"] = tamper
    try:
        answer = call()
    except PlimsollError as e:
        assert type(e).__name__ == cls and e.not_dispatched == mark, f"{name}: {e!r} {e.not_dispatched}"
        return e
    finally:
        state["tamper"] = None
    raise AssertionError(f"{name}: was believed: {answer}")


def snippet(): return c.run_javascript("console.log(6*7)")
def run(change): return edit("Run", change)
def is_echo(pair): return pair[0].lower() == ID.lower()


noticed("no echo", "AnswerNotBoundError", headers(lambda h: [p for p in h if not is_echo(p)]), snippet)
noticed("two echoes", "AnswerNotBoundError", headers(lambda h: h + [p for p in h if is_echo(p)]), snippet)
noticed("another echo", "AnswerNotBoundError", headers(lambda h: [(k, "0" * 32) if is_echo((k, v)) else (k, v) for k, v in h]), snippet)
noticed("another type", "MalformedResponseError",
        headers(lambda h: [(k, "text/html") if k.lower() == "content-type" else (k, v) for k, v in h]), snippet)
noticed("no record", "NoRecordError", run(lambda m: m.pop("record")), snippet)
noticed("an old record", "RecordVersionError", run(lambda m: m["record"].update(version=3)), snippet)
noticed("one byte of output", "RecordMismatchError",
        run(lambda m: m["javascript"].update(stdout=base64.b64encode(b"43\n").decode())), snippet)
noticed("an exit code", "RecordMismatchError", run(lambda m: m["javascript"].update(exitCode=1)), snippet)
noticed("the tier", "RecordMismatchError", run(lambda m: m.update(isolation="vm")), snippet)
noticed("the tier of the record too", "RecordMismatchError",
        run(lambda m: (m.update(isolation="vm"), m["record"].update(isolation="vm"))), snippet)
noticed("the provider", "RecordMismatchError", run(lambda m: m.update(sandbox="other")), snippet)
noticed("the instance", "RecordMismatchError", run(lambda m: m.update(instance="")), snippet)
noticed("the policy of the record", "RecordMismatchError", run(lambda m: m["record"].update(policy="policy:sha256:" + "0" * 64)), snippet)
noticed("the time of the record", "RecordMismatchError", run(lambda m: m["record"].update(startedUnixMs="1")), snippet)
noticed("another kind of result", "ResultKindMismatchError", run(lambda m: m.update(project={}, javascript=None)), snippet)


def keep(_, reply): state["stored"] = reply
def replay(_, reply): return dict(state["stored"])


state["tamper"] = keep
snippet()
noticed("an earlier answer", "AnswerNotBoundError", replay, snippet)
# An old refusal for a run that was executed must not count as "did not run".
try:
    state["tamper"] = keep
    c.run_javascript("1", minimum_isolation="vm")
except PlimsollError as e:
    assert e.not_dispatched == "isolation", e
e = noticed("an earlier refusal", "DisabledError", replay, snippet)
assert e.answer_not_bound
marked = lambda _, reply: {"status": 503, "headers": [("Content-Type", "application/json"), ("Plimsoll-Not-Dispatched", "capacity")], "body": b"{}"}
assert noticed("a mark of nobody", "PlimsollError", marked, snippet).answer_not_bound

# Sessions: an answer that is lost or changed stops the session; nothing is sent any more.
for name, cls, change in (
    ("a number", "RecordMismatchError", lambda m: m["run"]["record"].update(sequence="7")),
    ("the fingerprint", "RecordMismatchError", lambda m: m["run"]["record"].update(session="0" * 64)),
    ("the output", "RecordMismatchError", lambda m: m["run"]["cell"].update(stdout="")),
):
    s = c.open_session()
    s.run_cell("1", "python")
    noticed(name, cls, edit("SessionRun", change), lambda: s.run_cell("2", "python"))
    e = noticed("then nothing is sent", "PlimsollError", None, lambda: s.run_cell("3", "python"), mark="request")
    noticed("and the close shows it", "ChainError", None, s.close)
s = c.open_session()
s.run_cell("1", "python")
noticed("a call too many at the close", "ChainError", edit("CloseSession", lambda m: m.update(calls="2")), s.close)
noticed("another session at the open", "ChainError", edit("OpenSession", lambda m: m.update(session="0" * 64)), c.open_session)
noticed("a weaker open", "IsolationEvidenceMismatchError", edit("OpenSession", lambda m: m.update(isolation="process")),
        lambda: c.open_session(minimum_isolation="container"))
check = c.open_session()
check.run_cell("1", "python")
assert check.close().calls == 1, "untouched, all of it is believed"
print(f"ok   tampering {made}")
