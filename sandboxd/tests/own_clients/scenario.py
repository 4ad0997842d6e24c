"""What each client of freeboard.v1 must do, against a live daemon. Prints `ok` and a word for each."""

import copy
import os
import sys

sys.path.insert(0, os.environ["CLIENT"])
import freeboard  # noqa: E402
from freeboard import Client, Failed, Refused  # noqa: E402

client = Client(os.environ["URL"], os.environ["TOKEN"])


def refused(reason, call):
    try:
        call()
    except Refused as error:
        assert error.reason == reason, error
    else:
        raise AssertionError(f"not refused: {reason}")


run = client.run({"python": "import os,sys; sys.stdout.write(os.environ['A']); sys.exit(3)"},
                 environment={"A": "b"}, minimum_isolation="container", key="one")
step = run["result"]["steps"][0]
assert (step["stdout"], step["exitCode"], run["executed"]) == (b"b", 3, "yes"), run
print("ok result")
again = client.run({"python": "import os,sys; sys.stdout.write(os.environ['A']); sys.exit(3)"},
                   environment={"A": "b"}, minimum_isolation="container", key="one")
assert again == run and client.get(key="one") == run
print("ok key")
content = bytes(range(256))
run = client.run({"shell": "cp in.bin out.bin"}, files={"in.bin": content}, artifacts=["out.bin"])
assert run["result"]["artifacts"] == [{"path": "out.bin", "content": content}], run
print("ok files")
refused("isolation", lambda: client.run({"shell": "true"}, minimum_isolation="kernel"))
refused("request", lambda: client.get(run="0" * 32))
refused("permission", lambda: Client(os.environ["URL"], "wrong").list())
refused("unsupported", lambda: client._call("Unknown", b"{}"))
print("ok refused")
started, _ = client.start({"command": ["printf", "hello"]})
assert b"".join(data for stream, data in client.follow(started["run"]) if stream == "stdout") == b"hello"
print("ok follow")
started, _ = client.start({"command": ["sleep", "600"]})
assert started["run"] in [run["run"] for run in client.list()]
ended = client.cancel(started["run"])
assert (ended["state"], ended["ending"]) == ("ended", "cancelled"), ended
print("ok cancel")
[standing] = client.limits()["callers"]
assert (standing["caller"], standing["running"]) == ("alice", 0) and standing["maxConcurrent"] > 0, standing
administrator = Client(os.environ["URL"], os.environ["ADMIN"])
everybody = administrator.limits(everybody=True)
assert "alice" in [one["caller"] for one in everybody["callers"]] and everybody["daemon"]["maxConcurrent"] > 0, everybody
assert ended["run"] in [run["run"] for run in administrator.list("ended", everybody=True) if run["caller"] == "alice"]
for everybodys in [client.limits, client.list]:
    refused("permission", lambda: everybodys(everybody=True))
refused("unsupported", lambda: client.grants(["none"]))
print("ok callers")
started, _ = client.start({"command": ["cat"]}, stdin="one ", stdin_open=True, limits={"outputBytes": 8})
assert client.write(started["run"], 4, "two ") == 8
assert client.write(started["run"], 4, b"two three", end=True) == 13
b"".join(data for _, data in client.follow(started["run"]))
ended = client.get(run=started["run"])
assert ended["result"]["steps"][0]["stdout"] == b"one two " and ended["result"]["stdin"]["bytes"] == 13, ended
refused("unsupported", lambda: client.run({"shell": "true"}, limits={"memoryMib": 1 << 20}))
print("ok stdin")
started, sent = client.start({"shell": "echo x"}, wait=20)
for change in [lambda run: run["result"]["steps"][0].update(stdout=b"y"), lambda run: run["record"].update(isolation="vm"),
               lambda run: run["record"].update(run="other"), lambda run: run.pop("record"),
               lambda run: run["result"].update(requests={"allowed": 1, "denied": 0, "failed": 0, "shed": 0}),
               lambda run: run["result"].update(stdin={"bytes": 0, "sha256": ""})]:
    changed = copy.deepcopy(started)
    change(changed)
    try:
        freeboard.check(changed, sent)
    except Failed:
        continue
    raise AssertionError(changed)
try:
    freeboard.check(started, sent + b" ")
except Failed:
    print("ok tampering")
try:
    Client("http://example.test", "x")
except ValueError:
    print("ok url")
