"""`python -m tests.soak.faults`: every fault under load; prints what clients saw, fails where an answer was lost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.soak.faults.cluster import SHORT, struck
from tests.soak.faults.striking import Outcome, faults, strike

HEADER = ("fault", "answered", "recovery s", "slowest s", "ran twice", "second results dropped")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.faults", description="Is an answer lost?")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--stop", type=float, default=10.0, help="seconds that a stopped process stands still")
    parser.add_argument("--short", action="store_true", help="with bounds of a second or less in place of the defaults")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as folder, struck(Path(folder), SHORT if given.short else {}) as cluster:
        print(*HEADER, sep=" | ", flush=True)
        for fault in faults(given.stop):
            if given.only in fault.name:
                print(*_cells(strike(cluster, given.clients, fault)), sep=" | ", flush=True)
    return 0


def _cells(outcome: Outcome) -> tuple[object, ...]:
    return (
        outcome.fault, outcome.answered, f"{outcome.recovery_s:.1f}", f"{outcome.slowest_s:.1f}", outcome.twice,
        outcome.dropped,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
