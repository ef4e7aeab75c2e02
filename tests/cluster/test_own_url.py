"""What a worker's heartbeat tells others to reach it by."""

from __future__ import annotations

import socket

import pytest
from sie_cluster.programs.own_url import own_url


def listening(host: str) -> socket.socket:
    return socket.create_server((host, 0))


def named(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Let the host's name have an address."""
    kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, port, *_: [(*kind, (address, port))])


@pytest.mark.parametrize(
    ("host", "address", "told"),
    [
        ("0.0.0.0", "10.1.2.3", "10.1.2.3"),
        ("0.0.0.0", "127.0.1.1", "127.0.0.1"),
        ("127.0.0.1", "10.1.2.3", "127.0.0.1"),
    ],
)
def test_a_program_that_listens_on_every_address_is_reached_by_its_host_s(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str, told: str
) -> None:
    named(monkeypatch, address)
    with listening(host) as listener:
        assert own_url(listener) == f"http://{told}:{listener.getsockname()[1]}"


def test_a_host_without_an_address_is_reached_from_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with listening("0.0.0.0") as listener:
        assert own_url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
