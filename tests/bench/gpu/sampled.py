"""`python sampled.py OUT PROGRAM ARGUMENTS…`: runs a Python program and samples its threads until it ends.

OUT gets, for each thread, the CPU seconds that it used and how often each function was seen at the top of its stack. It
is written again each second, so that a program that is killed leaves what was seen. SIGUSR1 starts the count again.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

PERIOD_S = 0.002
"""Between two looks at the threads."""
MOST = 12
"""Functions told of a thread."""

_again = threading.Event()


def main() -> None:
    """Sample the program that the arguments name."""
    out, program, *arguments = sys.argv[1:]
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    signal.signal(signal.SIGUSR1, lambda *_: _again.set())
    threading.Thread(target=_sample, args=(Path(out),), name="sampler", daemon=True).start()
    runpy.run_path(program, run_name="__main__")


def _sample(out: Path) -> None:
    seen: dict[str, Counter[str]] = {}
    looks, written = 0, time.monotonic()
    while True:
        time.sleep(PERIOD_S)
        if _again.is_set():
            _again.clear()
            seen, looks = {}, 0
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != threading.get_ident():
                seen.setdefault(names.get(ident, "?"), Counter())[_told(frame)] += 1
        looks += 1
        if time.monotonic() - written > 1.0:
            written = time.monotonic()
            _write(out, seen, looks)


def _told(frame: FrameType) -> str:
    """Name the function at the top and, where it is a library's, the nearest of this project below it."""
    top = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
    below: FrameType | None = frame
    while below is not None and "/sie" not in below.f_code.co_filename:
        below = below.f_back
    if below is None or below is frame:
        return top
    return f"{top} < {Path(below.f_code.co_filename).name}:{below.f_code.co_name}:{below.f_lineno}"


def _write(out: Path, seen: dict[str, Counter[str]], looks: int) -> None:
    cpu = {thread.name: _cpu_s(thread.native_id) for thread in threading.enumerate() if thread.native_id is not None}
    told = {
        name: {
            "cpu_s": cpu.get(name),
            "share": {what: round(count / looks, 3) for what, count in counts.most_common(MOST)},
        }
        for name, counts in seen.items()
    }
    fresh = out.with_suffix(".new")
    fresh.write_text(json.dumps({"looks": looks, "threads": told}, indent=1), encoding="utf-8")
    fresh.replace(out)


def _cpu_s(thread: int) -> float | None:
    try:
        fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
