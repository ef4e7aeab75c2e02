"""Each role's user may do its part at a real broker, and nothing of another's."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from click.testing import CliRunner
from sie_cluster.queue.broker import ensure_queue
from sie_cluster.queue.subjects import cancel_subject, work_consumer, work_queue, work_subject

from sie_core.cli import main
from sie_core.contracts import Message, QueueError, QueueTransport, Work
from tests.nats.conftest import Broker, transport

SUBJECT = work_subject("org/model", "_default", "default")
CONSUMER = work_consumer("_default", SUBJECT, 5.0, 20)
API = "$JS.API."
QUEUE, DEAD, OTHER = "sie-work-_default", "sie-dlq-_default", "sie-work-gpu"
WORKERS_OWN = (f"$JS.ACK.{QUEUE}.c.1.1.1.1.0", f"{API}CONSUMER.MSG.NEXT.{QUEUE}.c", f"{API}CONSUMER.CREATE.{QUEUE}.c.x")
GATEWAYS_OWN = (SUBJECT, "sie.needed._default", "sie.waiting._default", "sie.cancel._default", "sie.gateways._default",
                "sie.dlq._default.org__model", "sie.health-wanted", f"{API}STREAM.MSG.DELETE.{QUEUE}")  # fmt: skip
LOOK_UPS = (f"{API}STREAM.MSG.GET.{QUEUE}", f"{API}CONSUMER.INFO.{QUEUE}.c")
FOREIGN_TO_WORKERS = tuple(each for each in GATEWAYS_OWN if each != "sie.health-wanted")
OPERATORS = (f"$JS.ACK.{DEAD}.c.1.1.1.1.0", f"{API}CONSUMER.MSG.NEXT.{DEAD}.c", f"{API}CONSUMER.CREATE.{DEAD}.c.x")
CONFIGS_OWN = tuple(f"{API}STREAM.{verb}.{queue}" for verb in ("CREATE", "UPDATE") for queue in (QUEUE, DEAD, OTHER))
NOBODYS = (f"{API}STREAM.PURGE.{QUEUE}", f"{API}STREAM.DELETE.{QUEUE}", f"{API}CONSUMER.DELETE.{QUEUE}.c",
           f"{API}STREAM.CREATE.mine", "$SYS.REQ.SERVER.PING", "anything",
           f"{API}CONSUMER.CREATE.KV_sie-pools", f"{API}CONSUMER.CREATE.KV_sie-pools.c", "sie.kv.sie-pools.pools",
           )  # fmt: skip
"""A consumer of a store could have the broker send what is stored to any subject."""
EVERYBODYS = (">", "*.>", "_INBOX.>", "_INBOX.*.*.>", "sie.>", "$JS.>")
JOURNAL = (*(f"{API}STREAM.{verb}.sie-config" for verb in ("CREATE", "UPDATE", "INFO")),
           f"{API}DIRECT.GET.sie-config", "sie-config.x")  # fmt: skip
NO_STORES = (f"{API}STREAM.DELETE.sie-config", f"{API}STREAM.PURGE.sie-config", "$KV.other.x")
STORES = ("sie-pools",)
GROWN = tuple(f"{API}STREAM.UPDATE.KV_{store}" for store in STORES)
POOLS = (*(f"{API}STREAM.{verb}.KV_sie-pools" for verb in ("INFO", "MSG.GET")),)
POOLS_KEPT = (f"{API}STREAM.CREATE.KV_sie-pools", "$KV.sie-pools.pools")
DELTAS = ("sie.config.models.default", "sie.config.models._all")
MAY = {
    "gateway.one": (
        (*GATEWAYS_OWN, *LOOK_UPS, *POOLS, *POOLS_KEPT),
        ("_INBOX.gateway.one.x", "sie.health.*", "sie.config.>", "sie.kv.sie-pools.>"),
    ),
    "worker.w1": (
        (*WORKERS_OWN, *POOLS, "_INBOX.gateway.one.x", "sie.health.w1", "sie.health-wanted"),
        (
            "sie.health.*",
            "sie.health-wanted",
            "_INBOX.worker.w1.>",
            "sie.needed._default",
            "sie.waiting._default",
            "sie.cancel._default",
            "sie.gateways._default",
            "sie.config.models.default",
            "sie.kv.sie-pools.pools",
        ),
    ),
    "config": ((*CONFIGS_OWN, *OPERATORS, *DELTAS, *JOURNAL, *GROWN), ("_INBOX.config.x", "sie.config.>")),
}
MAY_NOT = {
    "gateway.one": (
        (*WORKERS_OWN, *OPERATORS, *NOBODYS, *CONFIGS_OWN, *DELTAS, *JOURNAL, *GROWN, *NO_STORES, "sie.health.w1",
         "_INBOX.gateway.two.x", "sie.work.foreign.x"),
        (*EVERYBODYS, "_INBOX.gateway.>", "_INBOX.gateway.two.x", "_INBOX.worker.>", "sie.work.>"),
    ),
    "worker.w1": (
        (*FOREIGN_TO_WORKERS, *NOBODYS, *CONFIGS_OWN, *DELTAS, *JOURNAL, *POOLS_KEPT, *GROWN, *NO_STORES,
         "sie.health.w2",
         "_INBOX.worker.w2.x",
         f"$JS.ACK.{OTHER}.c.1.1.1.1.0",
         f"{API}CONSUMER.MSG.NEXT.{OTHER}.c", f"{API}CONSUMER.CREATE.{OTHER}.c.x"),
        (*EVERYBODYS, "_INBOX.gateway.>", "_INBOX.worker.w2.x", "sie.cancel.gpu", "sie.work.>", "sie.kv.other.x"),
    ),
    "config": (
        (*GATEWAYS_OWN, *WORKERS_OWN, *NOBODYS, *NO_STORES, "sie.health.w1", "_INBOX.gateway.one.x"),
        (*EVERYBODYS, "sie.health.*", "_INBOX.gateway.one.x", "sie.work.>", "sie.needed._default"),
    ),
}  # fmt: skip
BOUND_S = 30.0


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("conf") / "nats.conf"
    names = ("--gateway", "one", "--gateway", "two", "--worker", "w1", "--worker", "w2", "--worker", "w3@gpu")
    files = ("--out", str(out), "--folder", str(out.with_name("js")))
    told = CliRunner().invoke(main, ["cluster", "nats-conf", *files, *names])
    assert told.exit_code == 0, told.output
    return out


@pytest.fixture(scope="module")
def broker(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"), config.read_text())
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def passwords(config: Path) -> dict[str, str]:
    users = json.loads(config.read_text())["authorization"]["users"]
    return {each["user"]: each["password"] for each in users}


@asynccontextmanager
async def login(broker: Broker, passwords: dict[str, str], user: str) -> AsyncIterator[QueueTransport]:
    opened = transport(broker.url, user=user, password=passwords[user])
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


def test_the_file_holds_a_user_for_each_and_is_its_owner_s_alone(config: Path, passwords: dict[str, str]) -> None:
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    users = {"gateway.one", "gateway.two", "worker.w1", "worker.w2", "worker.w3", "config"}
    assert passwords.keys() == users
    assert len(set(passwords.values())) == len(users)


@pytest.mark.parametrize("bad", ["a b", "a.b", "*", ">", "", "a@b@c"])
def test_a_name_that_would_be_a_pattern_is_refused(tmp_path: Path, bad: str) -> None:
    told = CliRunner().invoke(main, ["cluster", "nats-conf", "--out", str(tmp_path / "x"), "--worker", bad])
    assert told.exit_code == 2
    assert "is no name" in told.output


async def refusals(broker: Broker, passwords: dict[str, str], user: str, publish, subscribe) -> set[tuple[str, str]]:  # type: ignore[no-untyped-def]
    """Try all of it on one connection; return what the broker refuses."""
    refused = []

    async def failed(error: Exception) -> None:
        refused.append(str(error))

    client = await nats.connect(broker.url, user=user, password=passwords[user], error_cb=failed)
    for subject in publish:
        await client.publish(subject, b"")
    for subject in subscribe:
        await client.subscribe(subject)
    await client.flush()
    await client.flush()  # the client sends its first ping ahead of what waits
    await client.close()
    tried = {("publish", subject) for subject in publish} | {("subscription", subject) for subject in subscribe}
    return {(what, of) for what, of in tried if any(f'{what} to "{of}"'.lower() in each.lower() for each in refused)}


async def make_queues(broker: Broker, passwords: dict[str, str]) -> None:
    """Make the queues of the pool, as `sie cluster queues` does."""
    login = {"SIE_NATS_URL": broker.url, "SIE_NATS_USER": "config", "SIE_NATS_PASSWORD": passwords["config"]}
    told = await asyncio.to_thread(CliRunner().invoke, main, ["cluster", "queues"], env=login)
    assert (told.exit_code, told.stdout.split()) == (0, [QUEUE, DEAD, *STORES]), told.output


@pytest.mark.parametrize("user", MAY)
async def test_a_user_may_do_its_part_and_nothing_else(broker: Broker, passwords: dict[str, str], user: str) -> None:
    assert await refusals(broker, passwords, user, *MAY[user]) == set()
    publish, subscribe = MAY_NOT[user]
    everything = {("publish", each) for each in publish} | {("subscription", each) for each in subscribe}
    assert await refusals(broker, passwords, user, publish, subscribe) == everything


async def test_nobody_logs_in_without_a_password(broker: Broker) -> None:
    with pytest.raises(QueueError) as refused:
        await transport(broker.url).open()
    assert refused.value.failure == "DENIED"


async def test_each_of_several_equal_questions_that_are_refused_is_told_at_once(
    broker: Broker, passwords: dict[str, str]
) -> None:
    async with login(broker, passwords, "worker.w1") as worker, asyncio.timeout(BOUND_S):
        asking = [asyncio.create_task(worker.delete_work("sie-work-_default", 1)) for _ in range(3)]
        await asyncio.sleep(0)  # all have asked
        asking[0].cancel()
        _, *refused = await asyncio.gather(*asking, return_exceptions=True)
    assert [each.failure for each in refused if isinstance(each, QueueError)] == ["DENIED", "DENIED"]


async def test_work_goes_its_way_and_a_question_that_is_refused_is_told_at_once(
    broker: Broker, passwords: dict[str, str]
) -> None:
    loop = asyncio.get_running_loop()
    async with login(broker, passwords, "gateway.one") as gateway, login(broker, passwords, "worker.w1") as worker:
        for each in (gateway, worker):
            with pytest.raises(QueueError) as refused:
                await each.declare_queue(work_queue("_default"))
            assert refused.value.failure == "DENIED"
        waiting = [asyncio.create_task(ensure_queue(each, work_queue("_default"))) for each in (gateway, worker)]
        await make_queues(broker, passwords)
        async with asyncio.timeout(BOUND_S):
            await asyncio.gather(*waiting)
        await worker.declare_consumer(CONSUMER)
        with pytest.raises(QueueError) as refused:
            await gateway.declare_consumer(CONSUMER)
        assert refused.value.failure == "DENIED"
        stored, came, answered = loop.create_future(), loop.create_future(), loop.create_future()
        inbox = await gateway.inbox(answered.set_result)
        await gateway.publish(Work(SUBJECT, "w1", b"work"), stored.set_result)
        await worker.pull(CONSUMER.queue, CONSUMER.name, came.set_result, credit=1)
        async with asyncio.timeout(BOUND_S):
            delivery = await came
            await worker.send(f"{inbox.subject}.1", b"result")
            assert (await answered).payload == b"result"
            assert delivery.sequence == await stored
            delivery.ack()
            while await gateway.backlog(CONSUMER.queue):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"subjects": ["sie.work._default.>", "_INBOX.gateway.two.>"]},
        {"republish": {"src": ">", "dest": "sie.config.>"}},
    ],
    ids=["stores others' answers", "tells of changes"],
)
async def test_a_gateway_s_user_has_the_broker_neither_keep_nor_send_what_is_not_its_own(
    broker: Broker, passwords: dict[str, str], change: dict[str, Any]
) -> None:
    await make_queues(broker, passwords)
    async with login(broker, passwords, "gateway.one") as gateway:
        ask = gateway._connection.ask  # type: ignore[attr-defined]
        there = (await ask(f"STREAM.INFO.{QUEUE}"))["config"]
        with pytest.raises(QueueError) as refused:
            await ask(f"STREAM.UPDATE.{QUEUE}", {**there, **change})
        assert refused.value.failure == "DENIED"


async def test_a_worker_s_user_sends_no_work_and_calls_nothing_off(broker: Broker, passwords: dict[str, str]) -> None:
    async with login(broker, passwords, "gateway.one") as gateway, login(broker, passwords, "worker.w1") as worker:
        await make_queues(broker, passwords)
        await worker.publish(Work(SUBJECT, "foreign", b"work"), lambda _: None)
        called_off: list[Message] = []
        await worker.subscribe(cancel_subject("_default"), called_off.append)
        await worker.send(cancel_subject("_default"), b"foreign")
        async with asyncio.timeout(BOUND_S):
            while not called_off:
                # Again, as the broker may read this connection before it has read the other's subscription.
                await gateway.send(cancel_subject("_default"), b"own")
                await asyncio.sleep(0.01)
        assert {message.payload for message in called_off} == {b"own"}
        assert await gateway.backlog(CONSUMER.queue) == {}


async def test_a_worker_watches_what_gateways_keep_of_pools_and_writes_none_of_it(
    broker: Broker, passwords: dict[str, str]
) -> None:
    await make_queues(broker, passwords)
    async with login(broker, passwords, "gateway.one") as gateway, login(broker, passwords, "worker.w1") as worker:
        store, told = await gateway.key_value("sie-pools"), asyncio.Queue[dict[str, bytes]]()
        watched = await worker.key_value("sie-pools", make=False)
        await watched.watch(lambda entries: told.put_nowait({key: each.value for key, each in entries.items()}))
        await store.put("lease.p", b"1", ttl_s=1)
        async with asyncio.timeout(BOUND_S):
            assert [await told.get() for _ in range(3)] == [{}, {"lease.p": b"1"}, {}]
            with pytest.raises((QueueError, TimeoutError)):
                async with asyncio.timeout(1):
                    await watched.put("pools", b"forged")
