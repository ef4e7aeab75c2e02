"""Follows a page as its reader does: command by command, in an empty home, what is printed held against the page.

A block of `sh` or `python` is a command. A block of `json` or `text` right below it is what it prints; `...` there
stands for anything. A line `<!-- not run: REASON -->` right above a command leaves it out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ADDRESS = "http://127.0.0.1:8080"
COMMAND_S = 250
FENCE = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n+)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNBLOCKING = re.compile(r"SIE_PLUGINS_BLOCKED=(?!\w)")
"""What brings back the models of sie-fake, which `make serve` leaves out."""


@dataclass(frozen=True)
class Step:
    """A command of a page; `printed` is what the page says it prints, `reason` why it is not run."""

    page: str
    line: int
    language: str
    code: str
    printed: str | None
    reason: str | None
    unblocked: bool


def steps(page: Path) -> list[Step]:
    """Return the commands of a page in their order."""
    text = page.read_text(encoding="utf-8")
    fences = [*FENCE.finditer(text), None]
    found = []
    for fence, after in pairwise(fences):
        assert fence is not None
        reason, language, code = fence.groups()
        if language not in ("sh", "python"):
            continue
        below = after if after is not None and not text[fence.end() : after.start()].strip() else None
        printed = below[3] if below is not None and below[2] in ("json", "text") else None
        before = text[: fence.start()]
        unblocked = UNBLOCKING.search(before) is not None
        found.append(Step(page.name, before.count("\n") + 1, language, code, printed, reason, unblocked))
    return found


def follow(step: Step, url: str, home: Path) -> str:
    """Run a command against the server at `url` with `home` as its home and folder; return what it printed.

    Raises AssertionError where it fails or prints something else than the page says.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SIE_", "HF_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    code = step.code.replace(ADDRESS, url)
    run = subprocess.run(
        ["bash", "-ec", code] if step.language == "sh" else [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        cwd=home,
        env={**inherited, "HOME": str(home), "PATH": path, "SIE_HF_FALLBACK": "false"},
    )
    where = f"{step.page}:{step.line}"
    assert run.returncode == 0, f"{where} failed:\n{run.stdout}{run.stderr}"
    if step.printed is not None:
        assert matches(run.stdout, step.printed), f"{where} printed:\n{run.stdout}"
    return run.stdout


def matches(printed: str, said: str) -> bool:
    """Whether a text is the one that a page says; `...` of the page stands for anything."""
    pattern = ".*?".join(map(re.escape, said.strip().split("...")))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
