"""`python -m tests.kit`: every check on every planted fault, and what found it."""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.kit.planted import FAULTS, outcome, runs


def main() -> int:
    found, named, total = Counter(), Counter(), Counter()
    wanted = sys.argv[1:]
    for fault in FAULTS:
        if wanted and fault.kind not in wanted:
            continue
        total[fault.kind] += 1
        started = time.monotonic()
        hangs = fault.given.get("hangs", False)
        failing = {name: told for name, run in runs(fault) if (told := outcome(run, hangs=hangs))}
        seconds = time.monotonic() - started
        found[fault.kind] += bool(failing)
        named[fault.kind] += fault.check in failing
        state = "found" if fault.check in failing else "found by others" if failing else "NOT FOUND"
        print(f"{fault}: {state} ({seconds:.1f} s)")
        for name, told in failing.items():
            print(f"    {'*' if name == fault.check else ' '} {name}: {told[:150]}")
    for kind, count in total.items():
        print(f"{kind}: {found[kind]} of {count} found, {named[kind]} by the check for it")
    print(f"all: {sum(found.values())} of {sum(total.values())} found, {sum(named.values())} by the check for it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
