"""No attack ends the server, takes more memory than it may, or leaves an honest client without answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.bench.fairness.attacks import ATTACKS
from tests.bench.fairness.siege import SPARE_BYTES, Outcome, Waits, attacked, besiege, settled, short
from tests.bench.fairness.table import row, rows
from tests.bench.processes.running import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALL = range(len(ATTACKS))
SHARE = 0.04
"""Of the full size of each attack."""
SECONDS = 1.0
ALL_SECONDS = 6.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with attacked(tmp_path_factory.mktemp("attacked"), 1, ALL) as running:
        yield running


@pytest.fixture(scope="module")
def alone(server: Server) -> Waits:
    return asyncio.run(short(server, SECONDS))


def shown(outcome: Outcome) -> Outcome:
    for cells in rows([row(outcome)]):
        print(*cells, sep=" | ")
    return outcome


@pytest.mark.parametrize("number", ALL, ids=[attack.name for attack in ATTACKS])
def test_an_attack_harms_nobody(server: Server, alone: Waits, number: int) -> None:
    assert shown(asyncio.run(besiege(server, [number], SECONDS, SHARE, alone))).problems == []


def test_all_attacks_at_once_harm_nobody(server: Server, alone: Waits) -> None:
    rest = server.footprint.rss_bytes()
    assert shown(asyncio.run(besiege(server, ALL, ALL_SECONDS, SHARE, alone))).problems == []
    assert settled(server, rest) <= SPARE_BYTES
