"""`python -m tests.kit [KIND…]`: the planted faults, and what finds each: its own check, else any other of its kind."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter

from tests.kit.planted import FAULTS, outcome, runs


def main() -> None:
    logging.disable(logging.CRITICAL)
    found, named, total = Counter[str](), Counter[str](), Counter[str]()
    for fault in FAULTS:
        if sys.argv[1:] and fault.kind not in sys.argv[1:]:
            continue
        started, hangs = time.monotonic(), fault.given.get("hangs", False)
        checks = sorted(runs(fault), key=lambda check: check[0] != fault.check)
        finding = next((name for name, run in checks if outcome(run, hangs=hangs)), None)
        total[fault.kind] += 1
        found[fault.kind] += finding is not None
        named[fault.kind] += finding is not None and finding == fault.check
        told = finding or f"NOT FOUND: {fault.given.get('why') or fault.subject.__doc__}"
        print(f"{fault}: {told} ({time.monotonic() - started:.1f} s)")
    for kind, count in total.items():
        print(f"{kind}: {found[kind]} of {count} found, {named[kind]} by the check for it")
    print(f"all: {sum(found.values())} of {sum(total.values())} found, {sum(named.values())} by the check for it")


if __name__ == "__main__":
    main()
