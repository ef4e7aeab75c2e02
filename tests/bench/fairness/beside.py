"""Short requests alone, and beside one client that sends large ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from tests.bench.clients.closed_loop import Round, drive
from tests.bench.clients.formats import FORMATS
from tests.bench.processes.running import HOST, Server
from tests.bench.processes.servers import MODEL
from tests.bench.workload.words import sentences

FORM = "base64"
LIMIT_S = 300.0
PAUSE_S = 0.02
"""Between an answer and the next short request: whoever reads it needs a moment, and few are never idle."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds of the short requests, and texts a second of the large ones."""

    p50_ms: float
    p99_ms: float
    refused: int
    texts_s: float = 0.0


async def measure(server: Server, texts: int, words: int, seconds: float) -> tuple[Waits, Waits]:
    """Send short requests for `seconds` seconds, alone and then beside requests of `texts` texts of `words` words."""
    alone = await _short(server, seconds)
    random = np.random.default_rng(7)
    bodies = [FORMATS[FORM].request(HOST, MODEL, [sentences(words, random) for _ in range(texts)]) for _ in range(2)]
    bulk = Round(bodies, 1, seconds)
    sending = asyncio.create_task(drive(HOST, server.port, bulk, 1, LIMIT_S))
    await asyncio.sleep(0.5)
    beside = await _short(server, seconds)
    await sending
    failed = sum(answer.status != 200 for answer in bulk.answers)
    return alone, Waits(
        beside.p50_ms, beside.p99_ms, beside.refused + failed, texts * len(bulk.answers) / (bulk.ended - bulk.started)
    )


async def _short(server: Server, seconds: float) -> Waits:
    random = np.random.default_rng(11)
    bodies = [FORMATS[FORM].request(HOST, MODEL, [sentences(8, random)]) for _ in range(64)]
    found = await drive(HOST, server.port, Round(bodies, 1, seconds, pause_s=PAUSE_S), 1, LIMIT_S)
    good = [1000 * answer.seconds for answer in found.answers if answer.status == 200]
    refused = len(found.answers) - len(good) + found.lost
    return Waits(float(np.percentile(good, 50)), float(np.percentile(good, 99)), refused)
