# Each line: what was tried, and what this program saw.
import os
import socket
import urllib.error
import urllib.request


def show(name, text):
    print(name + "\t" + " ".join(str(text).split()), flush=True)


def fetch(name, url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            show(name, f"{answer.status} {answer.read(200)}")
    except urllib.error.HTTPError as error:
        show(name, f"{error.code} {error.read(400).decode('utf-8', 'replace')}")
    except urllib.error.URLError as error:
        show(name, error.reason)
    except OSError as error:
        show(name, error)


def udp(name, address, port, data):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    try:
        s.connect((address, port))
        s.send(data)
        answer = s.recv(512)
        codes = {0: "an answer", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED"}
        show(name, f"DNS {codes.get(answer[3] & 15, answer[3] & 15)}, {int.from_bytes(answer[6:8], 'big')} records")
    except OSError as error:
        show(name, error)


fetch("route", "@API@/v1/secrets")
fetch("host", "https://ungranted.example/")
fetch("raw", "https://93.184.216.34/")
udp("udp", "93.184.216.34", 4433, b"hello")
# A recursive query for elsewhere.example, sent to a public resolver.
query = os.urandom(2) + b"\x01\x00\x00\x01" + b"\x00" * 6 + b"\x09elsewhere\x07example\x00" + b"\x00\x01\x00\x01"
udp("dns", "8.8.8.8", 53, query)
fetch("metadata", "http://169.254.169.254/latest/meta-data/")
