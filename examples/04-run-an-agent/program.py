# Written as for any machine: no proxy, no token, no certificate is named.
import json
import urllib.error
import urllib.request

API = "https://api.example.test:8443/v1"


def call(method, path, value=None):
    body = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(API + path, body, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["message"]


print(*call("GET", "/things"))
print(*call("POST", "/things", {"name": "crane"}))
print(*call("DELETE", "/things/1"))
