"""`python -m tests.soak.brokers`: every act on either leader under load; prints what clients saw, fails if an answer is
lost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.soak.brokers.cluster import struck
from tests.soak.brokers.striking import ACTS, HEADER, LEADERS, STEPPED_DOWN, Outcome, strike, two_away

MOST_SILENT_S = 15.0
TWO_AWAY = "two of three away"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.brokers", description="Is an answer lost?")
    parser.add_argument("--times", type=int, default=10, help="how often each act is done to each leader")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--away", type=float, default=12.0, help="seconds that a broker is away")
    parser.add_argument("--only", default="", help="acts whose name contains this")
    given, failed = parser.parse_args(arguments), False
    with TemporaryDirectory() as folder, struck(Path(folder)) as cluster:
        print("", *HEADER, "", sep=" | ")
        for act in (*ACTS, STEPPED_DOWN):
            for leader in LEADERS if given.only in act else ():
                outcome = Outcome(act, leader)
                for _ in range(given.times):
                    strike(cluster, outcome, given.clients, given.away)
                print("", *outcome.cells(), "", sep=" | ", flush=True)
                print(*outcome.wrong, sep="\n", end="", file=sys.stderr)
                failed = failed or bool(outcome.wrong) or max(outcome.silences_s) > MOST_SILENT_S
        if given.only in TWO_AWAY:
            print(TWO_AWAY, two_away(cluster, given.clients, 3 * given.away), sep=": ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
