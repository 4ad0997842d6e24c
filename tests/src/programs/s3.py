"""A small S3: it keeps objects in memory and takes no request whose signature botocore would not have made.

Arguments: address, port, certificate, key, access key id, secret key, session token ("-": none), region, log file.
"""

import datetime
import hashlib
import hmac
import http.server
import ssl
import sys
import urllib.parse
import zlib

import botocore.auth
import botocore.awsrequest
import botocore.credentials

ADDRESS, PORT, CERTIFICATE, KEY, ACCESS_ID, SECRET, TOKEN, REGION, LOG = sys.argv[1:]
CREDENTIALS = botocore.credentials.Credentials(ACCESS_ID, SECRET, None if TOKEN == "-" else TOKEN)
OBJECTS = {}


class Refused(Exception):
    pass


def authorization(handler):
    values = handler.headers.get_all("authorization") or []
    if len(values) != 1 or not values[0].startswith("AWS4-HMAC-SHA256 "):
        raise Refused("one Authorization of version 4 is wanted")
    parts = dict(part.strip().split("=", 1) for part in values[0].split(" ", 1)[1].split(","))
    return parts


def verify(handler, service):
    """The signature as botocore would have made it for this request."""
    parts = authorization(handler)
    key_id, day, region, of, end = parts["Credential"].split("/")
    if (key_id, region, of, end) != (ACCESS_ID, REGION, service, "aws4_request"):
        raise Refused("another scope: " + parts["Credential"])
    date = handler.headers["x-amz-date"]
    now = datetime.datetime.now(datetime.timezone.utc)
    sent = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if day != date[:8] or abs((now - sent).total_seconds()) > 300:
        raise Refused("another time: " + date)
    if (handler.headers["x-amz-security-token"] or "-") != TOKEN:
        raise Refused("another session token")
    names = parts["SignedHeaders"].split(";")
    unsigned = [n.lower() for n in handler.headers if n.lower().startswith("x-amz-") and n.lower() not in names]
    if unsigned or "host" not in names:
        raise Refused("not signed: %s" % unsigned)
    request = botocore.awsrequest.AWSRequest(
        method=handler.command,
        url="https://" + handler.headers["host"] + handler.path,
        data=None if service == "s3" else handler.body,
    )
    for name in names:
        for value in handler.headers.get_all(name) or []:
            request.headers.add_header(name, value)
    request.context["timestamp"] = date
    kind = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    signer = kind(CREDENTIALS, service, REGION)
    canonical = signer.canonical_request(request)
    text = signer.string_to_sign(request, canonical)
    expected = signer.signature(text, request)
    if not hmac.compare_digest(expected, parts["Signature"]):
        raise Refused("the signature does not match:\n" + canonical)
    return signer, date, "/".join([day, region, of, end]), expected


def derived(day):
    key = ("AWS4" + SECRET).encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def chunks(body, date, scope, seed, signed):
    """The content of an aws-chunked body, with each signature checked where there are any."""
    empty, content, previous, trailer = hashlib.sha256(b"").hexdigest(), b"", seed, b""
    key = derived(date[:8])

    def check(kind, rest, found):
        nonlocal previous
        text = "\n".join(["AWS4-HMAC-SHA256-" + kind, date, scope, previous, rest])
        previous = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        if previous != found:
            raise Refused("a chunk's signature does not match")

    while True:
        line, body = body.split(b"\r\n", 1)
        size = int(line.split(b";")[0], 16)
        data = body[:size]
        if signed:
            check("PAYLOAD", empty + "\n" + hashlib.sha256(data).hexdigest(), line.split(b"chunk-signature=")[1].decode())
        content += data
        if size == 0:
            break
        body = body[size:]
        if body[:2] != b"\r\n":
            raise Refused("a chunk does not end")
        body = body[2:]
    while True:
        line, body = body.split(b"\r\n", 1)
        if not line:
            break
        if line.startswith(b"x-amz-trailer-signature:"):
            check("TRAILER", hashlib.sha256(trailer).hexdigest(), line.split(b":")[1].decode())
        else:
            trailer += line + b"\n"
            name, value = line.decode().split(":", 1)
            if name == "x-amz-checksum-crc32":
                import base64
                if base64.b64decode(value) != zlib.crc32(content).to_bytes(4, "big"):
                    raise Refused("the checksum does not match")
    return content


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def read_body(self):
        if (self.headers["transfer-encoding"] or "") == "chunked":
            body = b""
            while True:
                size = int(self.rfile.readline().strip(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return body
        return self.rfile.read(int(self.headers["content-length"] or 0))

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_any(self):
        self.body = self.read_body()
        service = "dynamodb" if self.headers["x-amz-target"] else "s3"
        try:
            signer, date, scope, seed = verify(self, service)
            content = self.body
            kind = self.headers["x-amz-content-sha256"] or ""
            if kind.startswith("STREAMING-"):
                content = chunks(self.body, date, scope, seed, "HMAC" in kind)
                if len(content) != int(self.headers["x-amz-decoded-content-length"]):
                    raise Refused("the decoded length does not match")
            elif service == "s3" and kind != "UNSIGNED-PAYLOAD" and hashlib.sha256(content).hexdigest() != kind:
                raise Refused("the hash of the body does not match")
            with open(LOG, "a") as log:
                print(self.command, self.path, kind or "-", len(content), file=log)
        except Refused as why:
            with open(LOG, "a") as log:
                print("REFUSED", self.command, self.path, why, file=log)
            return self.answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        if service == "dynamodb":
            return self.answer(200, b'{"TableNames":["t"]}', Content_Type="application/x-amz-json-1.0")
        return self.serve(content)

    def serve(self, content):
        path = urllib.parse.unquote(self.path.split("?")[0])
        if self.command == "PUT":
            OBJECTS[path] = content
            return self.answer(200, ETag='"%s"' % hashlib.md5(content).hexdigest())
        if path.count("/") == 1 or path.endswith("/bucket/"):
            names = "".join("<Contents><Key>%s</Key><Size>1</Size></Contents>" % name.split("/", 2)[2] for name in sorted(OBJECTS))
            text = "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>%s</ListBucketResult>" % names
            return self.answer(200, text.encode(), Content_Type="application/xml")
        if path not in OBJECTS:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return self.answer(200, OBJECTS[path])

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any


server = http.server.ThreadingHTTPServer((ADDRESS, int(PORT)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
