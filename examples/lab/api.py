"""The API that the examples call: HTTPS, a bearer token on everything but /v1/public, and a little state.

api.py ADDRESS CERTIFICATE KEY TOKEN-FILE. Listens on port 8443 and says so. Ends with its standard input or by a signal.
"""

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS, CERTIFICATE, KEY, TOKEN_FILE = sys.argv[1:]
with open(TOKEN_FILE, encoding="ascii") as file:
    TOKEN = file.read().strip()
THINGS = {1: {"id": 1, "name": "anchor"}, 2: {"id": 2, "name": "bell"}}


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(min(length, 65536))
        if self.path == "/v1/public":
            return self.send(200, {"public": True})
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self.send(401, {"error": "no valid token"})
        if self.path == "/v1/whoami":
            return self.send(200, {"user": "the holder of the token"})
        if self.path == "/v1/things":
            if self.command == "POST":
                thing = {"id": len(THINGS) + 1, "name": json.loads(body)["name"]}
                THINGS[thing["id"]] = thing
                return self.send(201, thing)
            return self.send(200, list(THINGS.values()))
        number = self.path.removeprefix("/v1/things/")
        if number.isdigit() and int(number) in THINGS:
            return self.send(200, THINGS[int(number)])
        return self.send(404, {"error": "nothing there"})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def send(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
server = ThreadingHTTPServer((ADDRESS, 8443), Api)
server.socket = context.wrap_socket(server.socket, server_side=True)
print("listening", flush=True)
server.serve_forever()
