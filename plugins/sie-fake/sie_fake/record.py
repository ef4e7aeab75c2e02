"""Record of the fakes: every load, run and unload, readable in the process and from a file.

Adapters write into it, tests read it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Literal


@dataclass(frozen=True, slots=True)
class Event:
    """One load, run or unload of a fake."""

    kind: Literal["load", "lora", "run", "unload"]
    model: str
    texts: tuple[str, ...] = ()
    """Texts of a run after truncation and prompts, in the order of the batch; empty for other events."""
    cost: int = 0

    @property
    def size(self) -> int:
        """The units of the run."""
        return len(self.texts)


class Record:
    """The latest events of this process, oldest first. Safe to use from any thread.

    Args:
        keep: Number of events to keep.
    """

    def __init__(self, keep: int = 100_000) -> None:
        self._events: deque[Event] = deque(maxlen=keep)
        self._lock = Lock()

    def add(self, event: Event, journal: Path | None = None) -> None:
        """Keep `event`, and append it to `journal` as one line of JSON."""
        with self._lock:
            self._events.append(event)
            if journal is not None:
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(event)) + "\n")

    def events(self, model: str | None = None, kind: str | None = None) -> list[Event]:
        """List the events of `model` and `kind`; None lists all."""
        with self._lock:
            return [e for e in self._events if model in (None, e.model) and kind in (None, e.kind)]

    def runs(self, model: str | None = None) -> list[Event]:
        """List the runs of `model`, or of all."""
        return self.events(model, "run")

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._events.clear()


RECORD = Record()
"""The record of this process."""


def read_journal(path: Path) -> Iterator[Event]:
    """Read the events that a fake of any process wrote to its `journal`; none if the file does not exist yet."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        yield Event(fields["kind"], fields["model"], tuple(fields["texts"]), fields["cost"])
