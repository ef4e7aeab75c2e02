"""Clients that ask without a pause, each text once, and hold every vector against the one its text has by hash."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count

import httpx
import numpy as np
from sie_fake.outputs import vectors
from sie_sdk import SIEClient

from tests.soak.faults.cluster import BOUND_S, DIMS, MODEL, until


class Clients:
    """So many, in turn on each of some gateways, behind what a balancer does: who cannot connect goes to the next.

    A request that fails for good, or a wrong vector, is in `wrong`.

    Args:
        urls: The gateways.
        number: How many.
        retries: Whether they try again where an error says so.
        model: What they ask, a model of the fake family with `dims` numbers a text.
    """

    def __init__(
        self, urls: Sequence[str], number: int, *, retries: bool = True, model: str = MODEL, dims: int = DIMS
    ) -> None:
        self.wrong: list[str] = []
        self.answered = 0
        self.slowest_s = 0.0
        self.refused: Counter[int] = Counter()
        """The statuses of errors that the SDK hides: it tries again."""
        self._urls, self._model, self._dims, self._done = urls, model, dims, threading.Event()
        self._budget_s = BOUND_S if retries else 0.0
        self._good_since = [0.0] * number
        """When the latest request was sent that was answered."""
        self._threads = [threading.Thread(target=self._ask, args=(each,), daemon=True) for each in range(number)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(BOUND_S)

    def go_on(self, since: float | None = None) -> float:
        """Wait until each has had an answer to a request that it sent after `since`; return the seconds from then.

        Raises:
            AssertionError: A request failed, or a vector is wrong.
        """
        start = time.monotonic() if since is None else since
        until(lambda: bool(self.wrong) or all(each > start for each in self._good_since), "an answer to each client")
        assert self.wrong == []
        return time.monotonic() - start

    def _ask(self, number: int) -> None:
        turned = number % len(self._urls)
        urls = [*self._urls[turned:], *self._urls[:turned]]
        items = 40 if number % 4 == 0 else 1
        with (
            httpx.Client(transport=_Balanced(urls, self.refused)) as http,
            SIEClient(urls[0], timeout_s=BOUND_S, http_client=http) as client,
        ):
            for turn in count():
                if self._done.is_set():
                    return
                texts = [f"client {number} turn {turn} item {item}" for item in range(items)]
                sent = time.monotonic()
                try:
                    results = client.encode(self._model, texts, provision_timeout_s=self._budget_s)
                except Exception as error:
                    self.wrong.append(f"client {number} of {urls[0]}: {error!r}")
                    return
                for text, result in zip(texts, results, strict=True):
                    if not np.array_equal(result["dense"], vectors.dense(text, self._dims)):
                        self.wrong.append(f"another vector for {text!r}")
                self.answered += 1
                self.slowest_s = max(self.slowest_s, time.monotonic() - sent)
                self._good_since[number] = sent


class _Balanced(httpx.BaseTransport):
    def __init__(self, urls: Sequence[str], refused: Counter[int]) -> None:
        self._refused = refused
        self._urls = [httpx.URL(url) for url in urls]
        self._transport = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for url in self._urls[:-1]:
            with contextlib.suppress(httpx.ConnectError):
                return self._send(request, url)
        return self._send(request, self._urls[-1])

    def _send(self, request: httpx.Request, url: httpx.URL) -> httpx.Response:
        request.url = request.url.copy_with(host=url.host, port=url.port)
        reply = self._transport.handle_request(request)
        if not reply.is_success:
            self._refused[reply.status_code] += 1
        return reply

    def close(self) -> None:
        self._transport.close()
