"""Runs the checks of a distribution in a child process, which a plugin may hang, end or print into.

The child runs check after check and tells of each; if one does not end in time, or ends the child, another child goes
on behind it.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

State = Literal["passed", "skipped", "failed"]
LIMIT_S = 120.0
"""Seconds that one check may take, the load of its model included."""
LISTING_S = 120.0
"""Seconds until the first check begins: the plugins are imported."""
QUOTED = 400
"""Characters of the child's stderr in the cause of its end."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one check."""

    id: str
    part: str
    name: str
    state: State
    cause: str = ""
    """Why it failed, or was skipped."""
    seconds: float = 0.0


class CannotCheck(Exception):
    """The checks of a distribution cannot be listed; the message says why."""


def run_checks(
    distribution: str,
    arguments: Mapping[str, Any],
    site: Path | None = None,
    *,
    limit_s: float = LIMIT_S,
    only: Sequence[str] = (),
) -> Iterator[Result]:
    """Run the checks of a distribution and yield each result when it is there.

    Args:
        distribution: Its name, as pip has it.
        arguments: Further arguments of `checks_of`, of JSON's types; paths as strings.
        site: A folder with the distribution, which is used in place of an installed one.
        limit_s: Seconds that a check may take.
        only: Ids of the only checks to run, as `model/facts-are-truthful`; empty for all.

    Raises:
        CannotCheck: The distribution has no plugin, or it is broken.
    """
    asked = {"distribution": distribution, "arguments": dict(arguments), "only": list(only)}
    done = 0
    while True:
        with _Child({**asked, "first": done}, site, limit_s) as child:
            yield from child.results()
            done += child.ended
            if child.complete:
                return


class _Child:
    """One child process and what it tells."""

    def __init__(self, asked: Mapping[str, Any], site: Path | None, limit_s: float) -> None:
        path = os.pathsep.join(filter(None, (str(site or ""), os.environ.get("PYTHONPATH", ""))))
        environ = {**os.environ, **({"PYTHONPATH": path} if path else {})}
        command = [sys.executable, "-m", "sie_kit.cli.child", json.dumps(asked)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
        self._limit_s = limit_s
        self._said = ""
        self._hung = False
        self.ended = 0
        """Checks that came to an end, or ended the child."""
        self.complete = False

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def results(self) -> Iterator[Result]:
        """Yield the result of each check until the child ends, or hangs."""
        running: dict[str, str] | None = None
        started = time.monotonic()
        for told in self._lines():
            if "refused" in told:
                raise CannotCheck(told["refused"])
            if "started" in told:
                running, started = told["started"], time.monotonic()
            elif "ended" in told:
                running = None
                self.ended += 1
                yield Result(**told["ended"])
            elif "complete" in told:
                self.complete = True
                return
        if running is None:
            raise CannotCheck(f"the checks cannot be listed: {self._end()}")
        self.ended += 1
        yield Result(**running, state="failed", cause=self._end(), seconds=round(time.monotonic() - started, 1))

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Read what the child tells until it ends; what takes longer than the limit ends it."""
        told, said = self._process.stdout, self._process.stderr
        assert told is not None
        assert said is not None
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(told, selectors.EVENT_READ)
            selector.register(said, selectors.EVENT_READ)
            latest, listing = time.monotonic(), True
            while selector.get_map():
                limit_s = LISTING_S if listing else self._limit_s
                ready = selector.select(max(0.0, latest + limit_s - time.monotonic()))
                if not ready:
                    self._hung = True
                    return
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is said:
                        self._said = (self._said + data.decode(errors="replace"))[-QUOTED:]
                    else:
                        latest, listing = time.monotonic(), False
                        *lines, rest = (rest + data).split(b"\n")
                        yield from map(json.loads, lines)

    def _end(self) -> str:
        if self._hung:
            return f"it did not end within {self._limit_s:g} s"
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"it ended the process with {how}; stderr ends with: {self._said.strip() or 'nothing'}"


def as_json(results: Sequence[Result]) -> str:
    """Write results for programs: a list of objects."""
    return json.dumps([asdict(result) for result in results], indent=2)
