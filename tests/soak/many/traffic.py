"""Who asks for what: models by Zipf's law, the order of the requests, and what an ideal cache would miss."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

RETRY_LIMIT_S = 200.0
RETRIED = {"MODEL_LOADING", "MODEL_NOT_LOADED", "RESOURCE_EXHAUSTED", "QUEUE_FULL"}


def zipf(models: Sequence[str], count: int, seed: int = 0, exponent: float = 1.0) -> list[str]:
    """Draw `count` models: the n-th is asked for with a chance proportional to 1 / n ** exponent."""
    weights = [(rank + 1) ** -exponent for rank in range(len(models))]
    return random.Random(seed).choices(models, weights, k=count)


def misses_of_lru(asked: Sequence[str], capacity: int) -> int:
    """Count the loads of a cache that holds `capacity` models and lets the longest unused go."""
    held: OrderedDict[str, None] = OrderedDict()
    misses = 0
    for model in asked:
        misses += model not in held
        held[model] = None
        held.move_to_end(model)
        if len(held) > capacity:
            held.popitem(last=False)
    return misses


@dataclass
class Traffic:
    """Clients that share a list of requests until it is empty."""

    url: str
    waiting: list[str]
    admitted: list[str] = field(default_factory=list)
    """The models asked for, in the order the requests were sent."""
    answered: int = 0
    vectors: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """By model and text."""
    failures: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, threads: int) -> None:
        """Send every request from so many threads; return when all are answered."""
        self.waiting.reverse()
        clients = [threading.Thread(target=self._client) for _ in range(threads)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def _client(self) -> None:
        with httpx.Client(base_url=self.url, timeout=RETRY_LIMIT_S) as http:
            while True:
                with self._lock:
                    if not self.waiting:
                        return
                    model = self.waiting.pop()
                    self.admitted.append(model)
                    number = len(self.admitted)
                self._ask(http, model, f"text number {number}")

    def _ask(self, http: httpx.Client, model: str, text: str) -> None:
        """Ask as a client does: an answer that says to come back is no failure until it has said so for minutes."""
        until = time.monotonic() + RETRY_LIMIT_S
        while True:
            answer = http.post("/v1/embeddings", json={"model": model, "input": [text]})
            if answer.status_code == 200:
                break
            code = answer.json()["error"].get("code")
            if str(code).upper() not in RETRIED or time.monotonic() > until:
                with self._lock:
                    self.failures.append(f"{model}: {answer.status_code} {answer.text}")
                return
            time.sleep(min(float(answer.headers.get("Retry-After", 1)), 1.0))
        vector = answer.json()["data"][0]["embedding"]
        with self._lock:
            self.answered += 1
            self.vectors[model, text] = vector
