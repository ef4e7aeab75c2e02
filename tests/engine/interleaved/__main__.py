"""`python -m tests.engine.interleaved`: a million interleavings, or as many as the command line says."""

from __future__ import annotations

import argparse
import time

from tests.engine.interleaved.scenario import Scenario


def main() -> None:
    """Run them; the first that goes wrong ends it, and its seed is printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.interleaved")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    began = time.monotonic()
    for seed in range(given.first, given.first + given.count):
        try:
            Scenario(seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        done = seed - given.first + 1
        if done % 50_000 == 0 or done == given.count:
            print(f"{done} interleavings in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
