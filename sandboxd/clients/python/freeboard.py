"""Runs programs behind a measured boundary, through sandboxd's freeboard.v1. Python 3.9 and later, standard library only.

    from freeboard import Client
    with_token = Client("http://127.0.0.1:8746", token)
    run = with_token.run({"python": "print(6*7)"}, minimum_isolation="container", grants=["triage"])
    print(run["result"]["steps"][0]["stdout"])        # b"42\\n"

An answer counts only when it is bound to its request by the request id, when its record is that of what was sent and what
came back, and when the measured tier is at least the one asked for.
"""

import base64
import hashlib
import http.client
import json
import secrets
import ssl
import time
import urllib.parse

TIERS = ("process", "container", "kernel", "vm")
MAX_ANSWER_BYTES = 32 << 20
# An exchange waits this long at most; longer waits are several exchanges.
LONGEST_WAIT_MS = 30_000
# Standard input in one message.
MAX_STDIN_BYTES = 1 << 20
TRIES = 5


class FreeboardError(Exception):
    """Something is not as it was asked for."""


class Refused(FreeboardError):
    """Nothing ran. `reason` is one of request, permission, protocol, unsupported, isolation, environment, capacity."""

    def __init__(self, code, reason, message):
        super().__init__(f"{code}: {message} (nothing ran: {reason})")
        self.code, self.reason, self.message = code, reason, message


class Failed(FreeboardError):
    """No result, and code may have run. `run` is what is known of the run, or None."""

    def __init__(self, message, run=None):
        super().__init__(f"{message} (code may have run)")
        self.run = run


class Client:
    """One daemon and one caller. Safe to use from several threads: every exchange has a connection of its own."""

    def __init__(self, url, token, timeout=60.0):
        parts = urllib.parse.urlsplit(url)
        loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if parts.scheme != "https" and not (parts.scheme == "http" and loopback):
            raise ValueError("the URL is https, or http to this host")
        self._host, self._port, self._tls = parts.hostname, parts.port, parts.scheme == "https"
        self._token, self._timeout = token, timeout

    def start(self, program, *, files=None, artifacts=(), environment=None, grants=(), minimum_isolation="",
              timeout_ms=0, limits=None, stdin=None, stdin_open=False, queue_ms=0, priority="normal", trace_id="", wait=0,
              key=None):
        """Starts a run, or finds the one that the same call with the same `key` started, and waits up to `wait` seconds for its
        end. `limits` has `timeMs`, `memoryMib`, `pids`, `outputBytes`; with `stdin_open` more input follows with `write`.
        Returns (run, body that was sent)."""
        body = {"program": program, "priority": priority, "timeoutMs": timeout_ms, "queueMs": queue_ms,
                "minimumIsolation": minimum_isolation, "traceId": trace_id, "grants": list(grants),
                "artifacts": list(artifacts),
                "files": [{"path": path, "content": _base64(content)} for path, content in (files or {}).items()],
                "environment": [{"name": name, "value": value} for name, value in (environment or {}).items()]}
        if limits:
            body["limits"] = limits
        if stdin is not None or stdin_open:
            body["stdin"] = {"data": _base64(stdin or b""), "open": stdin_open}
        sent = json.dumps(body).encode()
        headers = {"Prefer": f"wait={wait}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        return _bytes_of(self._call("Start", sent, headers)), sent

    def run(self, program, *, key=None, **options):
        """Starts a run, waits for its end and checks its record. A lost answer is asked for again under the same key: what
        was started once is not started twice. Raises Refused or Failed."""
        key = key or secrets.token_hex(16)
        floor = options.get("minimum_isolation", "")
        options["wait"] = LONGEST_WAIT_MS // 1000
        for left in reversed(range(TRIES)):
            try:
                run, sent = self.start(program, key=key, **options)
                break
            except OSError as error:
                if left == 0:
                    raise Failed(f"no answer from the daemon: {error}") from error
                time.sleep(0.2)
        while run["state"] != "ended":
            self.watch(run["run"], after=1 << 62, wait_ms=LONGEST_WAIT_MS)
            run = self.get(run["run"])
        return check(run, sent, floor)

    def get(self, run=None, key=None):
        """A run by its id or by the key that it was started with."""
        asked = {"run": run} if key is None else {"idempotencyKey": key}
        return _bytes_of(self._call("Get", json.dumps(asked).encode()))

    def list(self, state=None, everybody=False):
        """The caller's runs, newest first; those of all callers where `everybody` is asked for, with the scope `code:admin`."""
        asked = {"everybody": everybody} if state is None else {"state": state, "everybody": everybody}
        return self._call("List", json.dumps(asked).encode())["runs"]

    def limits(self, everybody=False):
        """What the caller may have and has: an object with `callers`, and `daemon` where `everybody` is asked for, with the scope
        `code:admin`."""
        return self._call("Limits", json.dumps({"everybody": everybody}).encode())

    def grants(self, names):
        """What each of these grants opens: `grant`, `floor`, `apis` with `baseUrl` and `routes`."""
        return self._call("Grants", json.dumps({"grants": list(names)}).encode())["grants"]

    def watch(self, run, after=0, wait_ms=LONGEST_WAIT_MS):
        """Output after a place, waited for. Returns an object with `output`, `next` and `state`."""
        asked = {"run": run, "after": after, "waitMs": wait_ms}
        watched = self._call("Watch", json.dumps(asked).encode())
        for piece in watched["output"]:
            piece["data"] = base64.b64decode(piece["data"])
        return watched

    def follow(self, run):
        """Yields (stream, bytes) as the program writes them, until it ends."""
        after = 0
        while True:
            watched = self.watch(run, after)
            after = watched["next"]
            for piece in watched["output"]:
                yield piece["stream"], piece["data"]
            if watched["state"] == "ended":
                return

    def write(self, run, offset, data, end=False):
        """Gives a run that was started with `stdin_open` more input, from `offset` on, which is what was given before; waits for
        room. A lost answer may be asked for again: nothing is taken twice. Returns the next offset, which is less than all of
        `data` only where the run has ended."""
        data = data.encode() if isinstance(data, str) else data
        while True:
            piece = data[:MAX_STDIN_BYTES]
            asked = {"run": run, "offset": offset, "data": _base64(piece), "end": end and len(piece) == len(data),
                     "waitMs": LONGEST_WAIT_MS}
            written = self._call("Write", json.dumps(asked).encode())
            data = data[max(written["taken"] - offset, 0):]
            offset = written["taken"]
            if not data or written["ended"] or written["state"] == "ended":
                return offset

    def cancel(self, run):
        """Ends a run; nothing of it is left when this returns."""
        return _bytes_of(self._call("Cancel", json.dumps({"run": run}).encode()))

    def _call(self, procedure, body, headers=None):
        if self._tls:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=ssl.create_default_context())
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        asked = secrets.token_hex(16)
        try:
            connection.request("POST", f"/freeboard.v1.Runs/{procedure}", body, {
                "Content-Type": "application/json", "Authorization": f"Bearer {self._token}",
                "Freeboard-Request-Id": asked, **(headers or {})})
            response = connection.getresponse()
            answer = response.read(MAX_ANSWER_BYTES + 1)
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()
        if response.headers.get_all("Freeboard-Request-Id") != [asked]:
            raise Failed("the answer is not bound to the request")
        if len(answer) > MAX_ANSWER_BYTES:
            raise Failed("the answer is too large")
        if response.status == 200:
            return json.loads(answer)
        reason = response.headers.get("Freeboard-Not-Dispatched") or response.headers.get("Plimsoll-Not-Dispatched")
        try:
            error = json.loads(answer)
            code, message = error["code"], error.get("message", "")
        except (ValueError, KeyError, TypeError):
            code, message = f"HTTP {response.status}", answer[:200].decode(errors="replace").strip()
        if reason:
            raise Refused(code, reason, message)
        raise Failed(f"{code}: {message}")


def check(run, sent, floor=""):
    """The run, when it has a result whose record is that of `sent` and of the result. Raises Refused or Failed."""
    if run["executed"] == "no":
        refusal = run.get("refusal") or {"code": "canceled", "reason": "", "message": f"the run is {run.get('ending')}"}
        raise Refused(refusal["code"], refusal["reason"], refusal["message"])
    record, result = run.get("record"), run.get("result")
    if not record or not result:
        raise Failed((run.get("refusal") or {}).get("message") or f"the run is {run.get('ending')}", run)
    problems = []
    if record["run"] != run["run"]:
        problems.append("the record is of another run")
    if record["requestSha256"] != hashlib.sha256(sent).hexdigest():
        problems.append("the record is of another request")
    if record["resultSha256"] != result_digest(record["version"], run["ending"], result):
        problems.append("the result is not the one of the record")
    if record["recordSha256"] != record_digest(record):
        problems.append("the record does not match its own digest")
    if floor and (record["isolation"] not in TIERS or TIERS.index(record["isolation"]) < TIERS.index(floor)):
        problems.append(f"it ran at tier {record['isolation']}, below {floor}")
    if problems:
        raise Failed("; ".join(problems), run)
    return run


def result_digest(version, ending, result):
    fields = [("ending", ending), ("detail", result.get("detail", "")), ("steps", len(result["steps"]))]
    for step in result["steps"]:
        fields += [("step_command", step.get("command", "")), ("step_exit_code", step["exitCode"]),
                   ("step_timed_out", step["timedOut"]), ("step_stdout", step["stdout"]), ("step_stderr", step["stderr"]),
                   ("step_stdout_truncated", step["stdoutTruncated"]), ("step_stderr_truncated", step["stderrTruncated"])]
    artifacts = result.get("artifacts", [])
    fields.append(("artifacts", len(artifacts)))
    for artifact in artifacts:
        fields += [("artifact_path", artifact["path"]), ("artifact_content", artifact["content"])]
    fields += [("artifacts_truncated", result["artifactsTruncated"]), ("evidence", len(result["evidence"]))]
    for fact in result["evidence"]:
        fields += [("fact_name", fact["name"]), ("fact_value", fact["value"]), ("fact_met", fact["met"])]
    if version > 1:
        requests, refused, stdin = result.get("requests"), result.get("refused", []), result.get("stdin")
        fields.append(("requests", requests is not None))
        if requests is not None:
            fields += [(f"requests_{name}", requests[name]) for name in ("allowed", "denied", "failed", "shed")]
        fields.append(("refused", len(refused)))
        for one in refused:
            fields += [(f"refused_{name}", one[name]) for name in ("verdict", "method", "host", "path", "reason")]
        fields.append(("stdin", stdin is not None))
        if stdin is not None:
            fields += [("stdin_bytes", stdin["bytes"]), ("stdin_sha256", stdin["sha256"])]
    return _digest(f"freeboard.run-result.v{version}", fields)


def record_digest(record):
    names = {"run": "run", "request_sha256": "requestSha256", "result_sha256": "resultSha256", "provider": "provider",
             "isolation": "isolation", "environment": "environment", "policy": "policy",
             "started_unix_ms": "startedUnixMs", "ended_unix_ms": "endedUnixMs"}
    fields = [(name, record[key]) for name, key in names.items()]
    return _digest(f"freeboard.run-record.v{record['version']}", fields)


def _digest(domain, fields):
    digest = hashlib.sha256()
    for value in [domain, *(part for field in fields for part in field)]:
        if isinstance(value, bool):
            value = "true" if value else "false"
        raw = value if isinstance(value, bytes) else str(value).encode()
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()


def _base64(content):
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def _bytes_of(run):
    """Output and artifacts as bytes."""
    result = run.get("result") or {}
    for step in result.get("steps", []):
        step["stdout"], step["stderr"] = base64.b64decode(step["stdout"]), base64.b64decode(step["stderr"])
    for artifact in result.get("artifacts", []):
        artifact["content"] = base64.b64decode(artifact["content"])
    return run
