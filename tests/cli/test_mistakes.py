"""What is said of the mistakes of a first hour is what `mistakes.txt` holds, which a reader has reviewed."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.cli.mistakes import FILE


def test_what_is_said_of_mistakes_is_what_was_reviewed() -> None:
    code = "from tests.cli.mistakes import said; print(said(), end='')"  # a process of its own, as it goes elsewhere
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    assert portable(done.stdout) == portable(FILE.read_text(encoding="utf-8"))
    assert len(re.findall(r"^\d+\. ", done.stdout, re.MULTILINE)) >= 25


def portable(text: str) -> str:
    """Leave out the machine's processor."""
    return re.sub(r"cpu \((?:[^()]|\([^()]*\))*\)", "cpu", text)
