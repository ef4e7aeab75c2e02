"""How long an idle connection is kept is a setting of every program that clients and load balancers call."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sie_core.serving.bounds import KEEP_ALIVE_S
from sie_core.settings import Settings
from tests.conftest import run_server

BOUND_S = 30.0
PROGRAMS = (("serve",), ("gateway",), ("config", "serve"))


@pytest.mark.parametrize("command", PROGRAMS, ids=" ".join)
def test_an_idle_connection_is_kept_for_as_long_as_the_setting_says(tmp_path: Path, command: Sequence[str]) -> None:
    own = {"SIE_HTTP_KEEP_ALIVE_S": "1", "SIE_NATS_URL": "memory://keep-alive", "SIE_PLUGINS": "fake,cluster"}
    with run_server(tmp_path, own, command=command, ready=False) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), BOUND_S) as connection:
            for _ in range(2):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                reply = b""
                while not reply.endswith(b"ok"):
                    part = connection.recv(65536)
                    assert part
                    reply += part
            assert connection.recv(1) == b""


def test_it_is_longer_than_those_who_call_keep_theirs() -> None:
    assert Settings.model_fields["http_keep_alive_s"].default == KEEP_ALIVE_S > 90
