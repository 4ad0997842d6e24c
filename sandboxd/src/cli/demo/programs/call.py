# Plain urllib, no proxy, no token: the only thing that this program knows is the address of the API.
import json
import urllib.request

API = "@API@"

with urllib.request.urlopen(API + "/v1/items?limit=2") as answer:
    print("GET /v1/items?limit=2 ->", answer.status, answer.read().decode())

body = json.dumps({"text": "written by Python"}).encode()
request = urllib.request.Request(API + "/v1/notes", data=body, headers={"Content-Type": "application/json"})
with urllib.request.urlopen(request) as answer:
    print("POST /v1/notes ->", answer.status, answer.read().decode())
