"""`python -m tests.soak.attacks`: all attacks at once beside an honest client; fails where he loses anything."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sie_core.cpu_budget import cpu_budget
from tests.bench.fairness.attacks import ATTACKS
from tests.bench.fairness.siege import SPARE_BYTES, attacked, besiege, settled, short
from tests.bench.fairness.table import row, rows

ALL = range(len(ATTACKS))
ALONE_S, STILL_S = 10.0, 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.attacks", description="Does anybody lose anything?")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--gibibytes", type=float, default=3.0, help="the server's memory, where it can be bounded")
    parser.add_argument("--share", type=float, default=1.0, help="of the full size of each attack")
    given = parser.parse_args(arguments)
    limit = int(given.gibibytes * 2**30)
    with TemporaryDirectory() as folder, attacked(Path(folder), cpu_budget().threads, ALL, limit) as server:
        alone = asyncio.run(short(server, ALONE_S))
        rest = server.footprint.rss_bytes()
        outcome = asyncio.run(besiege(server, ALL, given.minutes * 60, given.share, alone))
        beyond = settled(server, rest, still_s=STILL_S)
    outcome.name = f"all at once, {given.minutes:g} minutes, {outcome.beside.answered} short requests answered"
    for cells in rows([row(outcome)]):
        print(*cells, sep=" | ")
    print(f"{beyond / 1e6:.0f} MB above rest afterwards; {SPARE_BYTES / 1e6:.0f} are allowed")
    return 1 if outcome.problems or beyond > SPARE_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
