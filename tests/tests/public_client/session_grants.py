"""Grants in sessions, with the public client: who may use them, for how long, and what a session shares.

PLIMSOLL_TOKEN is the caller `lab` of PLIMSOLL_URL, whose grants are: `items` and `few` for sessions, `pub` not."""
import os

from plimsoll_client import Client, PlimsollError

c = Client(os.environ["PLIMSOLL_URL"], token=os.environ["PLIMSOLL_TOKEN"])
GET = "curl -s -m 20 -o answer -w '%{http_code}' https://api.test/v1/items/1; echo; head -c 200 answer"


def get(session, grant):
    return session.run_project({}, [GET], grant_profile=grant).steps[0].stdout.decode().split("\n")[0]


def say(name, what):
    print(f"{name}: {what}")


with c.open_session() as s:
    print("session", s.session if hasattr(s, "session") else s.fingerprint)
    say("with the grant", get(s, "items"))
    say("the call after it", get(s, None))
    try:
        say("not for sessions", get(s, "pub"))
    except PlimsollError as e:
        say("not for sessions", f"{e.code} {e.not_dispatched}")
    say("a run of its own", c.run_project({}, ["curl -s -m 20 -o /dev/null -w '%{http_code}' https://pub.test/x"],
                                          grant_profile="pub").steps[0].stdout.decode())
    # A thread of a cell lives on between cells, stopped. It must not wake up while a call has a grant.
    s.run_cell("""
import threading, time, urllib.request
def reach():
    while True:
        try:
            urllib.request.urlopen("https://api.test/v1/items/2", timeout=5).read()
            open("reached", "w").close()
        except Exception:
            pass
        time.sleep(0.01)
threading.Thread(target=reach, daemon=True).start()
""")
    waited = s.run_project({}, [GET, "sleep 1; ls"], grant_profile="items")
    say("beside a cell's thread", waited.steps[0].stdout.decode().split("\n")[0])
    say("what the thread reached", "reached" in waited.steps[1].stdout.decode().split() or "nothing")
    say("JavaScript", s.run_javascript(
        "console.log((await fetch('https://api.test/v1/items/3')).status)", grant_profile="items").stdout.decode().strip())
    say("few", " ".join(get(s, "few") for _ in range(3)))
with c.open_session() as s:
    say("few in another session", get(s, "few"))
