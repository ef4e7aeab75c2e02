"""Three brokers of one cluster, which know one another by lines that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import nats

from sie_core.serving.listening import reserve
from tests.nats.conftest import Broker
from tests.soak.brokers.lines import HOST, Lines
from tests.soak.faults.cluster import WORK, until

COUNT = 3
ASK_S = 2.0
Leader = Literal["stream", "meta"]
"""Who leads the queue of the work, and who leads the brokers: makes streams, and places them."""
ACCOUNTS = """
accounts {
  SYS { users: [{ user: sys, password: sys }] }
  SIE { jetstream: enabled, users: [{ user: sie, password: sie }] }
}
system_account: SYS
no_auth_user: sie
"""


class Brokers:
    """All three, each under its number as name.

    Args:
        folder: Where their files go.
        routes: The ports at which they find one another.
        monitors: Those at which they tell of themselves.
        lines: To `routes`.
        queue: Whose leader is the stream's.
    """

    def __init__(self, folder: Path, routes: list[int], monitors: list[int], lines: Lines, queue: str) -> None:
        self.lines, self._monitors, self._queue = lines, monitors, queue
        self.all: list[Broker] = []
        for number, (port, monitor) in enumerate(zip(routes, monitors, strict=True)):
            own = folder / f"broker-{number}"
            own.mkdir()
            others = [other for other in range(COUNT) if other != number]
            ways = ", ".join(f"nats-route://{HOST}:{lines.port(number, other)}" for other in others)
            # Each broker advertises a port that nobody listens on, so that the others reach it by its lines alone.
            listen = f'cluster {{ name: sie, listen: "{HOST}:{port}", advertise: "{HOST}:1", routes: [{ways}] }}'
            names = f'server_name: "{number}"\nhttp: "{HOST}:{monitor}"\n'
            self.all.append(Broker(own, f"{names}{listen}\n{ACCOUNTS}"))

    @property
    def url(self) -> str:
        return ",".join(each.url for each in self.all)

    def leader(self, which: Leader) -> int:
        """Return the number of the broker that leads, as all that run tell alike, followed by all others.

        Raises:
            TimeoutError: They do not agree within the bound.
        """
        leads = self._stream if which == "stream" else self._meta
        until(lambda: leads() is not None, f"one {which} leader that all follow")
        found = leads()
        return self.leader(which) if found is None else found

    def step_down(self, which: Leader) -> None:
        """Have the leader give up its place."""
        subject = (
            f"$JS.API.STREAM.LEADER.STEPDOWN.{self._queue}" if which == "stream" else "$JS.API.META.LEADER.STEPDOWN"
        )
        told = self._ask(subject, None if which == "stream" else "sys")
        assert told is not None
        assert told.get("success"), told

    def clients(self, number: int) -> int:
        """Count the programs that are connected to a broker."""
        return int(httpx.get(f"http://{HOST}:{self._monitors[number]}/varz", timeout=30).json()["connections"])

    def _stream(self) -> int | None:
        told = (self._ask(f"$JS.API.STREAM.INFO.{self._queue}") or {}).get("cluster", {})
        followers = [each for each in told.get("replicas", ()) if each.get("current") and not each.get("offline")]
        return int(told["leader"]) if told.get("leader") and len(followers) == COUNT - 1 else None

    def _meta(self) -> int | None:
        told = set()
        for monitor in self._monitors:
            try:
                meta = httpx.get(f"http://{HOST}:{monitor}/jsz", timeout=ASK_S).json().get("meta_cluster", {})
            except (httpx.TransportError, json.JSONDecodeError):
                return None
            told.add(meta.get("leader"))
        (leader, *others) = told
        return int(leader) if leader and not others else None

    def _ask(self, subject: str, user: str | None = None) -> dict[str, Any] | None:
        async def ask() -> dict[str, Any] | None:
            urls = [each.url for each in self.all if each.process is not None]
            login = {} if user is None else {"user": user, "password": user}
            with contextlib.suppress(nats.errors.Error, OSError, asyncio.TimeoutError):
                client = await nats.connect(urls, connect_timeout=1, allow_reconnect=False, **login)
                try:
                    return dict(json.loads((await client.request(subject, b"", timeout=ASK_S)).data))
                finally:
                    await client.close()
            return None

        return asyncio.run(ask())


@contextmanager
def three_brokers(folder: Path, queue: str = WORK) -> Iterator[Brokers]:
    """Run them until the end of the block."""
    with ExitStack() as files:
        ports = [files.enter_context(reserve(HOST, 0))[1] for _ in range(2 * COUNT)]
        routes, monitors = ports[:COUNT], ports[COUNT:]
        brokers = Brokers(folder, routes, monitors, files.enter_context(Lines(routes).running()), queue)
        for each in brokers.all:
            files.callback(each.kill)
            each.start()
        yield brokers
