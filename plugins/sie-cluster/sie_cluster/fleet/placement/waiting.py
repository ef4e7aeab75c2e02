"""Which keys' work waits longer than a load takes, by what a worker that pulls them counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UNKNOWN_LOAD_S = 5.0
LEAST_S = 1.0
"""Of an age that counts, however quick a load is."""
FALLING = 0.75
"""A backlog that has fallen to so much of itself within the time of a load needs no further copy."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One key, at one look."""

    waiting: int
    """Messages that nobody was given."""
    delivered: int
    """Messages that this worker was given since the last look at the key."""
    passed_s: float
    """Since that."""
    load_s: float | None
    """What a load of its model takes; None: it is not known."""
    pullers: int
    """Workers that pull it, this one included."""


@dataclass(slots=True)
class _Backlog:
    pullers: int
    since: float | None = None
    """When what waits began to be too much, or was last found to fall."""
    waited: int = 0
    """The messages that waited then."""
    behind: bool = False


class Behind:
    """The keys of one worker."""

    def __init__(self) -> None:
        self._backlogs: dict[str, _Backlog] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """Those whose work waits longer than a load takes, has done so for as long, and does not fall."""
        return tuple(key for key, backlog in self._backlogs.items() if backlog.behind)

    def look(self, now: float, seen: Mapping[str, Seen | None]) -> None:
        """Take what was seen of every key that is pulled and whose model is loaded.

        Args:
            now: Seconds.
            seen: By key; None where nothing is known since the last look.
        """
        self._backlogs = {key: backlog for key, backlog in self._backlogs.items() if key in seen}
        for key, each in seen.items():
            if each is not None:
                _look(self._backlogs.setdefault(key, _Backlog(each.pullers)), now, each)


def _look(backlog: _Backlog, now: float, seen: Seen) -> None:
    most_s = max(LEAST_S, UNKNOWN_LOAD_S if seen.load_s is None else seen.load_s)
    wait_s = _wait_s(seen)
    if wait_s < most_s / 2 or backlog.pullers != seen.pullers:
        # Another copy is given time to help before a third is asked for.
        backlog.pullers, backlog.since, backlog.behind = seen.pullers, None, False
    elif wait_s > most_s:
        is_new = backlog.since is None
        if backlog.since is None or now - backlog.since >= most_s:
            backlog.behind = backlog.behind or not (is_new or seen.waiting <= FALLING * backlog.waited)
            backlog.since, backlog.waited = now, seen.waiting


def _wait_s(seen: Seen) -> float:
    """Give how long the last of what waits will wait, at the pace since the last look."""
    if seen.waiting <= 0:
        return 0.0
    return seen.waiting * seen.passed_s / (seen.delivered * seen.pullers) if seen.delivered else float("inf")
