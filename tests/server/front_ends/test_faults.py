"""Limits hold over all front ends, and each process may be killed: nothing is left over, and nobody waits for ever."""

from __future__ import annotations

import http.client
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import Server
from tests.server.front_ends.connecting import answer, connect_to_each, front_ends, post
from tests.server.test_stopping import BODY, BOUND_S, wait_for_requests_in_flight


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def two(start_server, held_model) -> Server:
    settings = {
        "SIE_MODELS_DIR": str(held_model.folder),
        "SIE_FRONTENDS": "2",
        "SIE_MAX_CONCURRENT_REQUESTS": "4",
        "SIE_TRUSTED_PROXIES": "127.0.0.1/32",
    }
    return start_server(settings, ["--preload", held_model.id])


def test_limits_are_of_the_whole_server_whose_death_leaves_nobody_waiting(two: Server, held_model) -> None:
    path = f"/v1/encode/{held_model.id}"
    mine, more = connect_to_each(two), connect_to_each(two)
    others = connect_to_each(two)
    (first, second), (third, fourth) = mine.values(), more.values()
    for connection in (first, second, third):
        post(connection, path, BODY, **{"X-Forwarded-For": "10.0.0.1"})
    wait_for_requests_in_flight(two.url, 3)
    post(fourth, path, BODY, **{"X-Forwarded-For": "10.0.0.1"})
    status, told, headers = answer(fourth)
    assert (status, told["error"]["code"]) == (503, "QUEUE_FULL")
    assert "of this client" in told["error"]["message"]
    assert headers["Retry-After"]
    fifth, sixth = others.values()
    post(fifth, path, BODY, **{"X-Forwarded-For": "10.0.0.2"})
    wait_for_requests_in_flight(two.url, 4)
    post(sixth, path, BODY, **{"X-Forwarded-For": "10.0.0.3"})
    status, told, _ = answer(sixth)
    assert (status, told["error"]["message"][:24]) == (503, "4 requests are in flight")

    children = front_ends(two)
    folders = {Path(each.cmdline()[-1]) for each in children}
    two.process.kill()
    for connection in (first, second, third, fifth):
        status, told, headers = answer(connection)
        assert (status, told["error"]["code"]) == (503, "QUEUE_UNAVAILABLE")
        assert headers["Retry-After"]
    _, alive = psutil.wait_procs(children, timeout=BOUND_S)
    assert alive == []
    assert [each for each in folders if each.exists()] == []


def test_work_ends_with_its_deadline_its_client_and_its_front_end(two: Server, held_model) -> None:
    path, before = f"/v1/encode/{held_model.id}", front_ends(two)
    late, left = connect_to_each(two).values()
    post(left, path, BODY)
    wait_for_requests_in_flight(two.url, 1)
    post(late, path, BODY, **{"X-SIE-Timeout-Ms": "300"})
    status, told, _ = answer(late)
    assert (status, told["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
    wait_for_requests_in_flight(two.url, 1)
    left.close()
    wait_for_requests_in_flight(two.url, 0)

    (killed, lost), (_, kept) = connect_to_each(two).items()
    post(lost, path, BODY)
    post(kept, path, BODY)
    wait_for_requests_in_flight(two.url, 2)
    psutil.Process(killed).kill()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        lost.getresponse()
    until(lambda: len({each.pid for each in front_ends(two)} - {each.pid for each in before}) == 1)
    wait_for_requests_in_flight(two.url, 1)
    held_model.release()
    assert answer(kept)[0] == 200

    held_model.hold.touch()
    children, connections = front_ends(two), connect_to_each(two).values()
    for connection in connections:
        post(connection, path, BODY)
    wait_for_requests_in_flight(two.url, 2)
    two.signal(signal.SIGTERM)
    two.wait_for_log("SIGTERM")
    assert two.probe("/readyz") == 503
    held_model.release()
    assert [answer(each)[0] for each in connections] == [200, 200]
    assert two.wait() == 0
    _, alive = psutil.wait_procs(children, timeout=BOUND_S)
    assert alive == []
