"""A session whose sandbox is lost in a call: the client gets the record of the call that may have run, and the chain holds."""
import os
from plimsoll_client import Client, PlimsollError, SessionEndedError

c = Client(os.environ["PLIMSOLL_URL"], token=os.environ.get("PLIMSOLL_TOKEN"))
s = c.open_session()
try:
    s.run_javascript("1")
except PlimsollError as e:
    assert type(e) is PlimsollError and e.code == "internal" and e.not_dispatched is None, repr(e)
    assert e.record is not None and e.record.sequence == 1 and e.record.unanswered == "internal", e.record
    record = e.record
else:
    raise SystemExit("was answered")
assert s.calls == 1 and s.last_record_sha256 == record.sha256
try:
    s.run_javascript("1")
except SessionEndedError as e:
    assert e.reason == "main_process_ended" and e.not_dispatched == "request", repr(e)
else:
    raise SystemExit("was answered")
end = s.close()
assert (end.calls, end.end, end.last_record_sha256) == (1, "main_process_ended", record.sha256), end
print("ok   unanswered")
