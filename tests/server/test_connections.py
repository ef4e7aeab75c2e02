"""What only a real socket shows."""

import json
import re
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx

BOUND_S = 30.0


def connect(url: str) -> socket.socket:
    address = urlsplit(url)
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), timeout=BOUND_S)


def exchange(url: str, request: bytes) -> bytes:
    with connect(url) as connection:
        connection.sendall(request)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
        return reply


def test_a_path_that_climbs_is_refused(fake_server: str) -> None:
    for path in (b"/v1/models/../../etc/passwd", b"/v1/models/%2e%2e/x", b"/v1/models/a/..%2f..", b"/v1/models/..\\x"):
        reply = exchange(fake_server, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = int(reply.split()[1])
        assert status in (400, 404), path
        if reply.startswith(b"HTTP/1.1 4") and b"application/json" in reply:
            assert b'"error"' in reply


def test_an_oversized_upload_is_answered_before_it_is_over(start_server) -> None:
    server = start_server({"SIE_MAX_REQUEST_BODY_BYTES": "1000"})
    with connect(server.url) as connection:
        connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"400\r\n" + b"x" * 0x400 + b"\r\n")
        head = connection.recv(65536)
    assert head.startswith(b"HTTP/1.1 413")
    assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200


def test_a_client_that_hangs_up_frees_its_queued_work(start_server, held_model, call) -> None:
    server = start_server({"SIE_MODELS_DIR": str(held_model.folder)}, ["--preload", held_model.id])
    path = f"/v1/encode/{held_model.id}"
    running = call("POST", server.url + path, json={"items": [{"text": "running"}]})
    wait_until(lambda: "running" in held_model.journal.read_text())
    for number in range(8):
        body = json.dumps({"items": [{"text": f"abandoned {number}"}]}).encode()
        with connect(server.url) as connection:
            head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body))
            connection.sendall(head + body)
            wait_until(lambda: queued_units(server.url) == 1)
        wait_until(lambda: queued_units(server.url) == 0)
    held_model.release()
    assert running.result(BOUND_S).status_code == 200
    last = httpx.post(server.url + path, json={"items": [{"text": "last"}]}, timeout=BOUND_S)
    assert last.status_code == 200
    ran = held_model.journal.read_text()
    assert "last" in ran
    assert "abandoned" not in ran


def queued_units(url: str) -> float:
    metrics = httpx.get(f"{url}/metrics", headers={"Accept": "text/plain"}, timeout=BOUND_S).text
    return float(re.search(r"^sie_queue_units (\S+)$", metrics, re.MULTILINE)[1])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
