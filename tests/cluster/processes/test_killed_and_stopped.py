"""A cluster of real processes under load: each is killed, told to end and stopped, and no answer is lost.

`python -m tests.soak.faults` does the same with the default bounds, and prints what clients saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.soak.faults.clients import Clients
from tests.soak.faults.cluster import (
    BOUND_S,
    DEAD,
    ENDING,
    MODEL,
    OCCUPYING,
    SHORT,
    Struck,
    another_gateway,
    struck,
    until,
)
from tests.soak.faults.striking import Fault, faults, kill, stopped, strike

CLIENTS = 8
STOP_S = 3.0
FAULTS = [each for each in faults(STOP_S) if each.name not in ("SIGTERM: broker", f"stopped {STOP_S:g} s: broker")]
"""The broker is killed, and stopped with 20 MB on their way to it."""
QUEUED = "sie_gateway_requests_queued"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Struck]:
    with struck(tmp_path_factory.mktemp("struck")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Struck]:
    """A cluster whose broker gives no work to another within the bounds of tests."""
    with struck(tmp_path_factory.mktemp("patient"), {**SHORT, "SIE_ACK_WAIT_S": "600"}) as cluster:
        yield cluster


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_answer_is_right_whatever_befalls_a_process(cluster: Struck, fault: Fault) -> None:
    """Where a worker or its sidecar is told to end, clients need not even try again."""
    retries = not (fault.name.startswith("SIGTERM") and fault.role in ("worker", "sidecar"))
    print(strike(cluster, CLIENTS, fault, retries=retries))


def test_a_worker_whose_socket_was_removed_goes_on_with_the_sidecar_that_comes_next(cluster: Struck) -> None:
    sidecar = cluster.find("sidecar")
    Path(sidecar.environ()["SIE_IPC_SOCKET_PATH"]).unlink()
    with Clients(cluster.urls, CLIENTS) as clients:
        clients.go_on()
        kill(sidecar)
        until(cluster.whole, "both workers")
        clients.go_on()
    assert clients.wrong == []


def test_a_text_that_ends_its_process_is_refused_alone(cluster: Struck) -> None:
    ended = cluster.server.log().count(" ended with 70")
    with Clients(cluster.urls, CLIENTS) as clients:
        clients.go_on()
        reply = httpx.post(
            f"{cluster.server.url}/v1/encode/{MODEL}", json={"items": [{"text": ENDING}]}, timeout=BOUND_S
        )
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
        clients.go_on()
    assert clients.wrong == []
    until(lambda: cluster.server.log().count(" ended with 70") == ended + 2, "the end of two workers in the log")
    until(lambda: cluster.backlog(DEAD) == 1, "the text in the queue of the dead")
    until(cluster.whole, "both workers")


def test_the_texts_of_clients_that_left_and_of_deadlines_that_passed_never_run(cluster: Struck) -> None:
    def queued() -> int:
        return int(cluster.metric(QUEUED)[cluster.server.url])

    async def leave_and_be_late() -> None:
        async with httpx.AsyncClient(base_url=cluster.server.url, timeout=BOUND_S) as client:

            async def ask(text: str, **headers: str) -> httpx.Response:
                return await client.post(f"/v1/encode/{MODEL}", json={"items": [{"text": text}]}, headers=headers)

            leaving = [asyncio.create_task(ask(f"left {number}")) for number in range(32)]
            await asyncio.to_thread(until, lambda: queued() == OCCUPYING + 32, "all of them in the queue")
            for each in leaving:
                each.cancel()
            late = await asyncio.gather(
                *(ask(f"late {number}", **{"X-SIE-Timeout-Ms": "1000"}) for number in range(32))
            )
            assert {reply.status_code for reply in late} == {504}

    with cluster.held():
        asyncio.run(leave_and_be_late())
        until(lambda: queued() == OCCUPYING, "the gateway holds nothing of them")
        until(lambda: cluster.backlog() == OCCUPYING, "nothing of them is in the queue")
    until(lambda: cluster.backlog() == 0, "an empty queue")
    assert [text for text in cluster.ran() if text.startswith(("left", "late"))] == []


def test_the_work_of_a_gateway_that_fell_silent_is_dropped(cluster: Struck) -> None:
    async def ask(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=BOUND_S) as client:
            bodies = [{"items": [{"text": f"silent {number}"}]} for number in range(32)]
            await asyncio.gather(*(client.post(f"/v1/encode/{MODEL}", json=body) for body in bodies))

    async def ask_and_kill() -> None:
        with another_gateway(cluster.folder) as silent:
            asked = asyncio.create_task(ask(silent.url))
            await asyncio.to_thread(until, lambda: cluster.backlog() == OCCUPYING + 32, "all of them in the queue")
            silent.process.kill()
            with pytest.raises(httpx.TransportError):
                await asked

    with cluster.held():
        asyncio.run(ask_and_kill())
        until(lambda: cluster.backlog() == OCCUPYING, "nothing of that gateway is in the queue")
    until(lambda: cluster.backlog() == 0, "an empty queue")
    assert [text for text in cluster.ran() if text.startswith("silent")] == []


def test_the_work_of_a_worker_that_stands_still_goes_to_another_though_its_sidecar_goes_on(patient: Struck) -> None:
    """The sidecar gives it back: nobody waits until the broker does, nor until the worker goes on."""
    url = f"{patient.server.url}/v1/encode/{MODEL}"
    with patient.held(), ThreadPoolExecutor(OCCUPYING) as pool:
        bodies = [{"items": [{"text": f"stands still {number}"}]} for number in range(OCCUPYING)]
        asked = [pool.submit(httpx.post, url, json=body, timeout=BOUND_S) for body in bodies]
        until(lambda: patient.backlog() >= 2 * OCCUPYING, "all of them in the queue")
        with stopped(patient.find("worker")):
            (patient.folder / "hold").unlink()
            assert {each.result(BOUND_S).status_code for each in asked} == {200}
            (patient.folder / "hold").touch()
    until(patient.whole, "both workers")


def test_a_broker_that_stands_still_holds_no_client_longer_than_its_deadline(cluster: Struck) -> None:
    async def ask() -> set[int]:
        async with httpx.AsyncClient(timeout=BOUND_S) as client:
            body, deadline = {"items": [{"text": "a text"}]}, {"X-SIE-Timeout-Ms": "1500"}
            asked = [client.post(f"{url}/v1/encode/{MODEL}", json=body, headers=deadline) for url in cluster.urls * 8]
            return {reply.status_code for reply in await asyncio.gather(*asked)}

    with stopped(cluster.find("broker")):
        assert asyncio.run(ask()) <= {503, 504}
    until(cluster.whole, "the cluster goes on")
