"""The broker that `sie cluster up` runs: each role's user may do its part and nothing of the other's."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sie_nats.local import PERMISSIONS, local_broker

from sie_core.cluster.subjects import cancel_subject, work_consumer, work_queue, work_subject
from sie_core.contracts import LocalBroker, Message, QueueError, QueueTransport, Role, Work
from tests.nats.conftest import transport

SUBJECT = work_subject("org/model", "_default", "default")
CONSUMER = work_consumer("_default", SUBJECT, 5.0, 20)
BOUND_S = 30.0


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    broker = local_broker(tmp_path_factory.mktemp("local"))
    port = int(broker.url.rpartition(":")[2])
    process = subprocess.Popen(broker.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.02)
    yield broker
    process.kill()
    process.wait(BOUND_S)


async def login(broker: LocalBroker, role: Role) -> QueueTransport:
    opened = transport(broker.url, **broker.logins[role])
    await opened.open()
    return opened


def test_the_file_with_passwords_is_its_owner_s_alone(tmp_path: Path) -> None:
    local_broker(tmp_path)
    assert (tmp_path / "nats.conf").stat().st_mode & 0o777 == 0o600
    assert set(PERMISSIONS) == {"gateway", "worker"}


async def test_nobody_logs_in_without_a_password(local: LocalBroker) -> None:
    with pytest.raises(QueueError) as refused:
        await transport(local.url).open()
    assert refused.value.failure == "DENIED"


async def test_a_worker_s_user_sends_no_work_and_calls_nothing_off(local: LocalBroker) -> None:
    gateway, worker = await login(local, "gateway"), await login(local, "worker")
    await gateway.declare_queue(work_queue("_default"))
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    await worker.publish(Work(SUBJECT, "w1", b"work"), told.set_result)
    assert isinstance(await told, QueueError)
    assert await gateway.backlog(CONSUMER.queue) == {}
    called_off: list[Message] = []
    await worker.subscribe(cancel_subject("_default"), called_off.append)
    await worker.send(cancel_subject("_default"), b"foreign")
    async with asyncio.timeout(BOUND_S):
        while not called_off:
            # Again, as the broker may read this connection before it has read the other's subscription.
            await gateway.send(cancel_subject("_default"), b"own")
            await asyncio.sleep(0.01)
    assert {message.payload for message in called_off} == {b"own"}
    await gateway.close()
    await worker.close()


async def test_a_gateway_s_user_takes_no_work(local: LocalBroker) -> None:
    gateway, worker = await login(local, "gateway"), await login(local, "worker")
    await gateway.declare_queue(work_queue("_default"))
    await worker.declare_consumer(CONSUMER)
    with pytest.raises(QueueError):
        await gateway.pull(CONSUMER.queue, CONSUMER.name, lambda _: None, credit=1)
    await gateway.close()
    await worker.close()
