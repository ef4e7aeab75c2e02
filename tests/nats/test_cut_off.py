"""A broker that a network cut off from the others goes on answering pings: its programs leave it all the same."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from nats.aio.client import Server
from sie_nats.moving import AGAIN_S, Turns

from sie_core.contracts import QueueError, QueueSettings, QueueTransport, Work
from tests.nats.conftest import transport
from tests.soak.brokers.brokers import Brokers, three_brokers
from tests.soak.brokers.lines import HOST

QUEUE = QueueSettings("work", ("work.*",), max_bytes=1 << 24)
BOUND_S = 60.0


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with three_brokers(tmp_path, QUEUE.name) as brokers:
        yield brokers


async def opened(brokers: Brokers) -> QueueTransport:
    """Open a transport once the brokers have a queue that all of them follow."""
    one = transport(brokers.url, replicas="3")
    await one.open()
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                await one.declare_queue(QUEUE)
                break
            except QueueError:
                await asyncio.sleep(0.5)
    await asyncio.to_thread(brokers.leader, "stream")
    return one


async def publish(one: QueueTransport, name: str) -> int | QueueError:
    stored: asyncio.Future[int | QueueError] = asyncio.get_running_loop().create_future()
    try:
        await one.publish(Work("work.a", name, b"work"), stored.set_result)
    except QueueError as error:
        return error
    async with asyncio.timeout(BOUND_S):
        return await stored


async def until_stored(one: QueueTransport, name: str, bound_s: float) -> None:
    async with asyncio.timeout(bound_s):
        while isinstance(await publish(one, name), QueueError):  # noqa: ASYNC110 - the brokers tell nobody
            await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("leads", [True, False], ids=["the leader", "a follower"])
async def test_a_program_leaves_a_broker_that_is_cut_off_from_the_others(brokers: Brokers, leads: bool) -> None:
    one = await opened(brokers)
    at = next(number for number in range(3) if brokers.clients(number))
    while (await asyncio.to_thread(brokers.leader, "stream") == at) is not leads:
        await asyncio.to_thread(brokers.step_down, "stream")
    brokers.lines.cut(at)
    try:
        await until_stored(one, "message", BOUND_S)
        assert brokers.clients(at) == 0
    finally:
        brokers.lines.mend(at)
    await one.close()


async def test_a_message_that_is_sent_again_before_it_is_stored_may_be_sent_once_more(brokers: Brokers) -> None:
    """Its followers stand still, so that the leader cannot store it, and says that it has it already."""
    one = await opened(brokers)
    leader = await asyncio.to_thread(brokers.leader, "stream")
    followers = [each for number, each in enumerate(brokers.all) if number != leader]
    while not brokers.clients(leader):
        await one.close()
        one = transport(brokers.url)
        await one.open()
    for each in followers:
        each.signal(signal.SIGSTOP)
    outcomes = await asyncio.gather(publish(one, "twice"), publish(one, "twice"))
    for each in followers:
        each.signal(signal.SIGCONT)
    assert {each.failure for each in outcomes if isinstance(each, QueueError)} == {"UNAVAILABLE"}
    await until_stored(one, "twice", BOUND_S)
    await one.close()


def test_a_lost_connection_goes_round_all_brokers_and_tries_a_single_one_at_once_and_then_each_second() -> None:
    now = [100.0]
    turns, servers = Turns(lambda: now[0]), [Server(urlsplit(f"nats://{HOST}:{port}")) for port in (1, 2, 3)]
    turns.left(servers[0].uri.netloc)
    chosen = [turns.choose(servers, {}) for now[0] in (100.0, 100.1, 100.2, 100.3)]
    assert [servers.index(each) for each, _ in chosen] == [1, 2, 0, 1]
    assert [wait_s for _, wait_s in chosen] == pytest.approx([0.0, 0.0, 0.0, AGAIN_S - 0.3])
    alone = Turns(lambda: now[0])
    alone.left(servers[0].uri.netloc)
    assert [alone.choose(servers[:1], {})[1] for _ in range(2)] == [0.0, AGAIN_S]
