"""Whether cost grows linearly: tokens a second over ever more texts, one client's latency over a text's own time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median

import numpy as np

from tests.bench.processes.running import Server
from tests.bench.workload.reference import reference
from tests.bench.workload.texts import make_texts

REQUEST_S = 3600.0
ALONE = 5
"""How often a text is sent to learn its own time."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Tokens a second by number of texts, in one request each time."""

    kind: str
    tokens_s: dict[int, list[float]]

    @property
    def spread(self) -> float:
        """The least median over the largest: 1 is flat."""
        medians = [median(rates) for rates in self.tokens_s.values()]
        return min(medians) / max(medians)


def measure(
    server: Server, threads: int, sizes: Sequence[int], repeats: int, most_s: float, kind: str, request: int
) -> Scaling:
    """Have one client encode `sizes` texts in requests of `request` texts (0: all in one).

    A size is run `repeats` times, but no more once it took `most_s` seconds: a long run is its own average.
    """
    pool = make_texts(kind)
    tokens = reference(pool, threads).tokens
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    spent = dict.fromkeys(sizes, 0.0)
    server.encode(pool[:100], "msgpack")
    for _ in range(repeats):
        for size in (size for size in sizes if spent[size] < most_s):
            texts = list(islice(cycle(pool), size))
            step = request or size
            started = time.perf_counter()
            for start in range(0, size, step):
                server.encode(texts[start : start + step], "msgpack", REQUEST_S)
            seconds = time.perf_counter() - started
            spent[size] += seconds
            whole, rest = divmod(size, len(pool))
            rates[size].append(float(whole * tokens.sum() + tokens[:rest].sum()) / seconds)
    return Scaling(kind, rates)


@dataclass(frozen=True, slots=True)
class Visits:
    """One client's latencies over each text's own time, 99th percentiles.

    `first` holds what the server makes of a text it has not seen: a kernel chosen anew for every length, a pause, a
    wait for company. `again` is a later visit of the same text: what the machine itself scatters.
    """

    first: float
    again: float


def latency_over_alone(server: Server, count: int) -> Visits:
    """Visit `count` mixed texts once, then each again and again; a text's own time is the median of those visits."""
    texts = make_texts("mixed", count, seed=23)
    server.encode(texts[:1])
    first = [_seconds(server, text) for text in texts]
    alone, again = [], []
    for text in texts:
        alone.append(median(_seconds(server, text) for _ in range(ALONE)))
        again.append(_seconds(server, text))
    return Visits(*(float(np.percentile(np.divide(each, alone), 99)) for each in (first, again)))


def _seconds(server: Server, text: str) -> float:
    started = time.perf_counter()
    server.encode([text])
    return time.perf_counter() - started
