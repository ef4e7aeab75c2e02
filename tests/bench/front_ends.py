"""`python -m tests.bench.front_ends`: what the hop from a front end to the process with the device costs a request.

One text to a fake, by turns to a server of one process and to one with front ends; prints of both the median and the
10th percentile, which a busy machine disturbs less, and the differences.
"""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from tests.conftest import run_server

MODEL = "sie-fake/embedder"
BODY = json.dumps({"items": [{"text": "a red fox"}]})
HEADERS = {"Content-Type": "application/json"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.front_ends")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--frontends", type=int, default=1)
    asked = parser.parse_args()
    of: tuple[list[float], list[float]] = [], []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        connections = []
        for place, count in enumerate((0, asked.frontends)):
            arguments = ["--frontends", str(count), "--preload", MODEL]
            server = stack.enter_context(run_server(folder / str(place), args=arguments))
            connections.append(http.client.HTTPConnection(urlsplit(server.url).netloc))
        for _ in range(asked.requests):
            for connection, taken in zip(connections, of, strict=True):
                started = time.perf_counter()
                connection.request("POST", f"/v1/encode/{MODEL}", BODY, HEADERS)
                reply = connection.getresponse()
                reply.read()
                taken.append(time.perf_counter() - started)
                assert reply.status == 200
    warm = asked.requests // 10
    for percent in (50, 10):
        alone, behind = (1e3 * float(np.percentile(taken[warm:], percent)) for taken in of)
        print(f"p{percent}: {alone:.3f} ms a request to one process, {behind:.3f} ms to {asked.frontends} front ends")
        print(f"p{percent}: one more hop takes {behind - alone:+.3f} ms, {behind / alone:.2f} times")


if __name__ == "__main__":
    main()
