# Looks for the token in everything that this program can read. It knows the token's SHA-256, not the token.
import hashlib
import os
import re
import urllib.request

API = "@API@"
WANTED = {"token": "@TOKEN_SHA256@", "planted": "@PLANTED_SHA256@"}
PATTERN = re.compile(b"@PREFIX_A@" + b"@PREFIX_B@" + b"[0-9a-f]{32}")
found = {"token": set(), "planted": set()}
counts = {"environment": 0, "command lines": 0, "memory of processes": 0, "files": 0, "answers of the API": 0}
size = 0


def look(where, data):
    global size
    counts[where] += 1
    size += len(data)
    for hit in PATTERN.findall(data):
        digest = hashlib.sha256(hit).hexdigest()
        for name, wanted in WANTED.items():
            if digest == wanted:
                found[name].add(where)


def read(path, limit=8 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return None


# Calls first: whatever they leave in memory is then there to be found.
with urllib.request.urlopen(API + "/v1/items?limit=2") as answer:
    look("answers of the API", str(answer.headers).encode() + answer.read())

for process in filter(str.isdigit, os.listdir("/proc")):
    for name, where in (("environ", "environment"), ("cmdline", "command lines")):
        data = read(f"/proc/{process}/{name}")
        if data is not None:
            look(where, data)
    maps = read(f"/proc/{process}/maps")
    for line in (maps or b"").decode("utf-8", "replace").splitlines():
        fields = line.split()
        if "r" not in fields[1] or fields[-1] in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
            continue
        start, end = (int(part, 16) for part in fields[0].split("-"))
        try:
            with open(f"/proc/{process}/mem", "rb") as memory:
                memory.seek(start)
                data = memory.read(min(end - start, 64 << 20))
        except (OSError, ValueError, OverflowError):
            continue
        look("memory of processes", data)

# Every file outside the read-only view of the host's tools, and of that view what is not a program or library.
skip = {"/proc", "/sys", "/usr", "/lib", "/lib64", "/bin", "/sbin"}
for root, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(root, name) not in skip]
    for name in files:
        path = os.path.join(root, name)
        if os.path.isfile(path):
            data = read(path)
            if data is not None:
                look("files", data)

print("searched:", ", ".join(f"{count} x {where}" for where, count in counts.items()), f"({size >> 10} KiB)")
print("planted value found in:", ", ".join(sorted(found["planted"])) or "NOTHING")
print("token found in:", ", ".join(sorted(found["token"])) or "nothing")
