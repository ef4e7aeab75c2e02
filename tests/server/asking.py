"""A client of fakes whose vectors tell by their length which config they were made by."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import yaml

BOUND_S = 30.0


def fake_config(name: str, dim: int) -> str:
    """Write the config of a fake with vectors of `dim`."""
    config = {
        "sie_id": f"test/{name}",
        "package_backed": True,
        "tasks": {"encode": {"dense": {"dim": dim}}},
        "profiles": {"default": {"adapter_path": "fake"}},
    }
    return yaml.safe_dump(config)


@functools.cache
def _client() -> httpx.Client:
    """Return the one client of every thread: to make one takes longer than a request.

    It keeps no connection open, for which a server would wait when it stops.
    """
    return httpx.Client(headers={"Connection": "close"}, timeout=60)


def dims(url: str, name: str) -> int | None:
    """Ask for a vector; its length, or None where there is no such model."""
    body, wait = {"items": [{"text": "a"}]}, {"Prefer": "wait=20"}
    answer = _client().post(f"{url}/v1/encode/test/{name}", json=body, headers=wait, timeout=BOUND_S)
    if answer.status_code == 404:
        return None
    assert answer.status_code == 200, answer.text
    return len(answer.json()["items"][0]["dense"]["values"])


def until(url: str, name: str, wanted: int | None) -> None:
    """Ask until the answer is `wanted`."""
    end = time.monotonic() + BOUND_S
    while dims(url, name) != wanted:
        assert time.monotonic() < end, f"{name} never answered with {wanted}"


@contextmanager
def hammering(url: str, name: str, clients: int = 1) -> Iterator[list[int | None]]:
    """Ask all the while, and give the answers; any other than 200 and 404 fails the test."""
    answers: list[int | None] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def ask() -> None:
        try:
            while not stop.is_set():
                answers.append(dims(url, name))
        except BaseException as error:
            failures.append(error)

    asking = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in asking:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in asking:
            thread.join(BOUND_S)
    assert failures == []
