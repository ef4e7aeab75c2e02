"""What happens to a leader, and what clients saw of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median

import httpx

from tests.soak.brokers.brokers import COUNT, Leader
from tests.soak.brokers.cluster import MODEL, Struck
from tests.soak.faults.cluster import BOUND_S

Act = Callable[[Struck, int, float], None]
"""Takes the cluster, the number of the broker that leads, and the seconds that it is away."""
LEADERS: tuple[Leader, ...] = ("stream", "meta")


@dataclass(slots=True)
class Outcome:
    """What clients saw of one act, done so many times."""

    act: str
    leader: Leader
    times: int = 0
    answered: int = 0
    refused: int = 0
    """Replies that told the SDK to try again."""
    silences_s: list[float] = field(default_factory=list)
    """Of each time the longest that a client waited for an answer, the SDK's pauses included."""
    twice: int = 0
    """Texts that ran more than once."""
    wrong: list[str] = field(default_factory=list)
    """Requests that failed for good, and vectors that are not those of their texts."""

    def cells(self) -> tuple[object, ...]:
        """List what a row of the table tells."""
        silences = (f"{median(self.silences_s):.1f}", f"{max(self.silences_s):.1f}") if self.silences_s else ("", "")
        return self.leader, self.act, self.times, self.answered, len(self.wrong), self.refused, *silences, self.twice


HEADER = ("leader", "act", "times", "answered", "lost or wrong", "hidden 503s", "median silence s", "longest s",
          "ran twice")  # fmt: skip


def kill(cluster: Struck, number: int, away_s: float) -> None:
    """End the broker at once, and start it again."""
    cluster.brokers.all[number].kill()
    time.sleep(away_s)
    cluster.brokers.all[number].start()


def stop(cluster: Struck, number: int, away_s: float) -> None:
    """Have the broker stand still."""
    cluster.brokers.all[number].signal(signal.SIGSTOP)
    time.sleep(away_s)
    cluster.brokers.all[number].signal(signal.SIGCONT)


def cut(cluster: Struck, number: int, away_s: float) -> None:
    """Let nothing pass between the broker and the others; programs that are connected to it stay so."""
    cluster.brokers.lines.cut(number)
    time.sleep(away_s)
    cluster.brokers.lines.mend(number)


ACTS: dict[str, Act] = {"kill -9": kill, "stopped": stop, "cut off": cut}
STEPPED_DOWN = "stepped down"


def strike(cluster: Struck, outcome: Outcome, clients: int, away_s: float) -> None:
    """Have clients ask, do it to the leader, and wait until each client is answered again and all is whole."""
    ran = cluster.ran()
    with cluster.clients(clients) as asking:
        asking.go_on()
        number, began = cluster.brokers.leader(outcome.leader), time.monotonic()
        if outcome.act == STEPPED_DOWN:
            cluster.brokers.step_down(outcome.leader)
        else:
            ACTS[outcome.act](cluster, number, away_s)
        try:
            asking.go_on(began)
            cluster.whole()
            asking.go_on()
        except AssertionError:
            cluster.whole()
    outcome.times += 1
    outcome.answered += asking.answered
    outcome.refused += asking.refused.total()
    outcome.silences_s.append(asking.slowest_s)
    outcome.twice += sum(count > 1 for count in (cluster.ran() - ran).values())
    outcome.wrong += asking.wrong


@dataclass(frozen=True, slots=True)
class Minority:
    """What was seen while two of three brokers were away."""

    first_s: float
    """Until both gateways had refused a request."""
    slowest_s: float
    """The longest refusal after that."""
    refusals: int
    told: tuple[str, ...]
    """What `/health` of the gateways said."""
    healed_s: float
    """From the start of the brokers until every client was answered."""


def two_away(cluster: Struck, clients: int, away_s: float) -> Minority:
    """Kill two brokers, see every request refused by type, and start them again.

    Raises:
        AssertionError: A request was not refused as it should be, or failed once both are back.
    """
    leader = cluster.brokers.leader("stream")
    away = leader, (leader + 1) % COUNT
    for number in away:
        cluster.brokers.all[number].kill()
    began, told = time.monotonic(), set[str]()
    with ThreadPoolExecutor() as pool:
        list(pool.map(refused, cluster.urls))
    first_s = time.monotonic() - began
    slowest_s, refusals = 0.0, 0
    while time.monotonic() - began < away_s:
        for url in cluster.urls:
            slowest_s, refusals = max(slowest_s, refused(url)), refusals + 1
            told |= set(httpx.get(f"{url}/health", timeout=BOUND_S).json()["problems"])
    for number in away:
        cluster.brokers.all[number].start()
    with cluster.clients(clients) as asking:
        healed_s = asking.go_on()
        cluster.whole()
        asking.go_on()
    assert asking.wrong == []
    return Minority(first_s, slowest_s, refusals, tuple(sorted(told)), healed_s)


def refused(url: str) -> float:
    """Return how long it takes a gateway to refuse a request because of its broker.

    Raises:
        AssertionError: It answers otherwise.
    """
    asked = time.monotonic()
    reply = httpx.post(f"{url}/v1/encode/{MODEL}", json={"items": [{"text": "a text"}]}, timeout=BOUND_S)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "QUEUE_UNAVAILABLE"), reply.text
    return time.monotonic() - asked
