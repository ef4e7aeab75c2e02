"""The faults, and what clients saw of each."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psutil

from tests.soak.faults.clients import Clients
from tests.soak.faults.cluster import BOUND_S, MODEL, ROLES, Struck, until

BIG = 50
"""Texts of 400 kB in each of four large requests; sixteen of each are on their way at a time, 25 MB of all."""


Act = Callable[[psutil.Process, Struck], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a process of a role."""

    name: str
    role: str
    act: Act


@dataclass(frozen=True, slots=True)
class Outcome:
    """What clients saw of one fault."""

    fault: str
    answered: int
    recovery_s: float
    """From the fault until each client had an answer to a request that it sent afterwards."""
    slowest_s: float
    """The longest request, the SDK's pauses included."""
    twice: int
    """Texts that ran more than once."""
    dropped: int
    """Second results that gateways dropped."""


def strike(cluster: Struck, clients: int, fault: Fault, *, retries: bool = True) -> Outcome:
    """Have clients ask, let a fault strike, and wait until all goes on and every process is back.

    Args:
        cluster: What is struck.
        clients: How many ask.
        fault: What strikes.
        retries: Whether they try again where an error says so.

    Raises:
        AssertionError: A request failed, or a vector is wrong.
    """
    ran, dropped = cluster.ran(), cluster.metric("sie_gateway_results_dropped_total")
    with Clients(cluster.urls, clients, retries=retries) as asking:
        asking.go_on()
        process = cluster.find(fault.role)
        began = time.monotonic()
        fault.act(process, cluster)
        recovery_s = asking.go_on(began)
        until(cluster.whole, f"all processes after: {fault.name}")
        asking.go_on()
    assert asking.wrong == []
    now = cluster.metric("sie_gateway_results_dropped_total")
    # A gateway that was started again counts from 0.
    more = sum(count - dropped.get(url, 0) if count >= dropped.get(url, 0) else count for url, count in now.items())
    twice = sum(count > 1 for count in (cluster.ran() - ran).values())
    return Outcome(fault.name, asking.answered, recovery_s, asking.slowest_s, twice, int(more))


def faults(stop_s: float) -> list[Fault]:
    """List every fault: each role killed, told to end, and stopped for so many seconds."""
    acts: dict[str, Act] = {
        "kill -9: {}": kill,
        "SIGTERM: {}": end,
        f"stopped {stop_s:g} s: {{}}": lambda process, _: stop(process, stop_s),
    }
    loaded = Fault(f"stopped {stop_s:g} s: broker, 20 MB on their way", "broker",
                   lambda process, cluster: stop_loaded(process, cluster, stop_s))  # fmt: skip
    return [*(Fault(name.format(role), role, act) for name, act in acts.items() for role in ROLES), loaded]


def kill(process: psutil.Process, _: Struck | None = None) -> None:
    """End a process at once."""
    process.kill()
    process.wait(BOUND_S)


def end(process: psutil.Process, _: Struck | None = None) -> None:
    """Have a process drain and end."""
    process.terminate()
    process.wait(BOUND_S)


def stop(process: psutil.Process, seconds: float) -> None:
    """Have a process stand still for so long."""
    with stopped(process):
        time.sleep(seconds)


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Have a process stand still within the block."""
    process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: process.status() == psutil.STATUS_STOPPED, "the process stands still")
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def stop_loaded(process: psutil.Process, cluster: Struck, seconds: float) -> None:
    """Have the broker stand still with 20 MB on their way to it; the requests may fail, but by a retryable error."""
    seen: list[str] = []

    def ask(url: str) -> None:
        body = {"items": [{"text": f"{number:04}" * 100_000} for number in range(BIG)]}
        try:
            reply = httpx.post(f"{url}/v1/encode/{MODEL}", json=body, timeout=BOUND_S)
        except httpx.HTTPError as error:
            seen.append(repr(error))
        else:
            seen.append(f"{reply.status_code} {'' if reply.is_success else reply.text[:300]}")

    threads = [threading.Thread(target=ask, args=(url,)) for url in cluster.urls for _ in range(2)]
    with stopped(process):
        for thread in threads:
            thread.start()
        time.sleep(seconds)
    for thread in threads:
        thread.join(BOUND_S)
    assert all(each.startswith(("200", "503")) for each in seen), seen
