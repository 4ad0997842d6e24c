#!/usr/bin/env python3
"""First requests on new connections from Python's own HTTP client, one after the other: microseconds as one JSON object.

Usage: first.py COUNT ADDRESS:PORT HOST PATH CA-FILE [PROXY-AUTHORIZATION]. A client that writes in small pieces meets the
40 ms of a delayed acknowledgement where a proxy does not switch Nagle's algorithm off.
"""

import http.client
import json
import socket
import ssl
import statistics
import sys
import time


class Connection(http.client.HTTPSConnection):
    """Connects to a fixed address instead of resolving the name."""

    def __init__(self, address, host, context, authorization):
        super().__init__(host, 443, context=context, timeout=30)
        self._create_connection = lambda _, timeout, source: socket.create_connection(address, timeout, source)
        if authorization:
            self.set_tunnel(host, 443, {"Proxy-Authorization": authorization})


def main():
    count, address, host, path, ca = sys.argv[1:6]
    authorization = sys.argv[6] if len(sys.argv) > 6 else None
    at, port = address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=ca)
    times = []
    for _ in range(int(count)):
        begin = time.perf_counter_ns()
        connection = Connection((at, int(port)), host, context, authorization)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        times.append((time.perf_counter_ns() - begin) / 1000)
        if answer.status != 200:
            sys.exit(f"status {answer.status}")
        connection.close()
    hundredths = statistics.quantiles(times, n=100)
    print(json.dumps({"p50_us": statistics.median(times), "p99_us": hundredths[98], "max_us": max(times),
                      "count": len(times), "over_30_ms": sum(took > 30_000 for took in times)}))


if __name__ == "__main__":
    main()
