"""Connections to each front end of a server, which share its port."""

from __future__ import annotations

import http.client
import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.conftest import Server

TIMEOUT_S = 30.0
MOST_TRIES = 200
"""The system spreads connections by a hash: that all of so many reach one of two front ends has no chance."""


def front_ends(server: Server) -> list[psutil.Process]:
    """List the processes that take HTTP for a server."""
    found = []
    for each in psutil.Process(server.process.pid).children():
        with suppress(psutil.NoSuchProcess):  # it has ended
            if "sie_cluster.frontends.front" in each.cmdline():
                found.append(each)
    return found


def connect_to_each(server: Server) -> dict[int, http.client.HTTPConnection]:
    """Open a connection to each front end; by its process."""
    wanted = {each.pid: each for each in front_ends(server)}
    there: dict[int, http.client.HTTPConnection] = {}
    for _ in range(MOST_TRIES):
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=TIMEOUT_S)
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        own = connection.sock.getsockname()[1]
        (pid,) = (
            pid
            for pid, each in wanted.items()
            if any(known.raddr and known.raddr.port == own for known in each.net_connections())
        )
        if there.setdefault(pid, connection) is not connection:
            connection.close()
        if len(there) == len(wanted):
            return there
    raise AssertionError(f"{MOST_TRIES} connections reached {len(there)} of {len(wanted)} front ends")


def post(connection: http.client.HTTPConnection, path: str, body: Any, **headers: str) -> None:
    """Send a request, whose answer the connection has later."""
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})


def answer(connection: http.client.HTTPConnection) -> tuple[int, Any, http.client.HTTPMessage]:
    """Read the status, the JSON and the headers of an answer."""
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read()), reply.headers
