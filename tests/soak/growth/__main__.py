"""`python -m tests.soak.growth`: soak, print, and fail where something grows or was answered wrongly."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sie_core.cpu_budget import cpu_budget
from tests.soak.growth.mix import MIXES
from tests.soak.growth.report import page
from tests.soak.growth.soaking import Plan, soak


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.growth", description="Does the server grow?")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--mix", choices=list(MIXES), default="everything", help="`leak` shows what a leak looks like")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second of all clients together")
    parser.add_argument("--threads", type=int, default=cpu_budget().threads, help="of a forward pass")
    given = parser.parse_args(arguments)
    print(f"A server works for {given.minutes:g} minutes …", file=sys.stderr, flush=True)
    outcome = soak(Plan(given.minutes * 60, given.mix, given.clients, given.rate, given.threads))
    print(page(outcome))
    return 1 if outcome.growing() or outcome.surprises else 0


if __name__ == "__main__":
    sys.exit(main())
