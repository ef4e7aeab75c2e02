"""When a connection leaves its broker for another, and which of them it turns to."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from nats.aio.client import Server

from sie_core.contracts import QueueError

LOOK_S = 2.0
"""Seconds between two questions to a queue's leader, and for its answer."""
HEARD_S = 4.0
"""Copies of a queue that its leader has not heard for so many seconds do not count: it hears them each second."""
LEAVE_S = 8.0
"""A broker is left after so many seconds in which no leader answered: a network may have cut it off from the others,
which its programs are not told. Most elections take less."""
MOST_S = 60.0
"""Seconds between two moves at most; the pause doubles while moving does not help."""
AGAIN_S = 1.0
"""Seconds between two attempts to connect to the same broker."""

log = logging.getLogger("sie_nats")


class Connected(Protocol):
    """What is moved."""

    @property
    def brokers(self) -> int:
        """How many it may connect to; 0 while it is not connected."""
        ...

    async def ask(self, subject: str) -> dict[str, Any]:
        """Ask JetStream's API.

        Raises:
            QueueError: With the failure.
        """
        ...

    def leave(self, why: str) -> None:
        """Give the broker up for another."""
        ...


async def leave_if_cut_off(connection: Connected, queue: Callable[[], str | None]) -> None:
    """Have a connection leave brokers that are cut off from the others, until cancelled.

    Args:
        connection: To one of several brokers.
        queue: Names a queue that this process uses; None before it uses one.
    """
    loop, since, pause_s, may_at = asyncio.get_running_loop(), math.inf, LOOK_S, -math.inf
    while True:
        await asyncio.sleep(LOOK_S)
        asked, name = loop.time(), queue()
        if name is None or connection.brokers < 2:
            continue
        alone_s = await _alone_s(connection, name)
        if alone_s is None:
            since, pause_s = math.inf, LOOK_S
            continue
        since, now = min(since, asked - alone_s), loop.time()
        if now >= max(since + LEAVE_S, may_at):
            connection.leave(f"reaches no leader of {name} that hears most copies, and another may")
            since, may_at, pause_s = math.inf, now + pause_s, min(2 * pause_s, MOST_S)


async def _alone_s(connection: Connected, queue: str) -> float | None:
    """Look for the leader of a queue.

    Returns:
        None: it hears most copies. 0: none answers, as in an election. `LEAVE_S`: it hears too few, so that it leads no
        more, and does not know it.
    """
    try:
        async with asyncio.timeout(LOOK_S):
            told = await connection.ask(f"STREAM.INFO.{queue}")
    except TimeoutError:
        return 0.0
    except QueueError as error:
        return 0.0 if error.failure == "UNAVAILABLE" else None
    except Exception:  # without this task nobody would leave a broker that is cut off
        log.exception("what the broker says of the queue %s cannot be read", queue)
        return None
    if hears_most(told):
        return None
    return LEAVE_S if told["cluster"].get("leader") else 0.0


def hears_most(told: Mapping[str, Any]) -> bool:
    """Whether a queue's leader tells of it, and hears most copies; a copy without a leader tells, too."""
    cluster = told.get("cluster") or {}
    if cluster and not cluster.get("leader"):
        return False
    followers = cluster.get("replicas") or []
    silent_s = sorted(math.inf if each.get("offline") else each.get("active", 0) / 1e9 for each in followers)
    return not silent_s or silent_s[(len(silent_s) - 1) // 2] < HEARD_S


class Turns:
    """Which broker is next: the one that was tried or left longest ago.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tried: dict[str, float] = {}

    def left(self, address: str) -> None:
        """Take that the connection to a broker is lost; it may be tried at once where there is no other."""
        self._tried[address] = max(self._when(address), self._clock() - AGAIN_S)

    def choose(self, servers: Sequence[Server], _: dict[str, Any]) -> tuple[Server, float]:
        """Return a broker, and the seconds to wait before it is tried."""
        now = self._clock()
        turn = min(servers, key=lambda each: self._when(each.uri.netloc))
        wait_s = max(0.0, self._when(turn.uri.netloc) + AGAIN_S - now)
        self._tried = {each.uri.netloc: self._when(each.uri.netloc) for each in servers}
        self._tried[turn.uri.netloc] = now + wait_s
        return turn, wait_s

    def _when(self, address: str) -> float:
        return self._tried.get(address, -math.inf)
