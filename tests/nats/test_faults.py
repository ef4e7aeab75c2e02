"""A broker that dies, stands still or refuses: who sends is told, and everything goes on afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.protocol.parser import Parser
from sie_nats.options import Options

from sie_core.contracts import ConsumerSettings, Delivery, Message, QueueError, QueueSettings, QueueTransport, Work
from tests.nats.conftest import Broker, transport

QUEUE = QueueSettings("work", ("work.*",), max_bytes=1 << 28)
CONSUMER = ConsumerSettings("work", "all", "work.*", ack_wait_s=2.0)
WAIT_S = 30.0


async def wait_for(transport: QueueTransport, state: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while transport.state != state:  # noqa: ASYNC110 - a state of another process
            await asyncio.sleep(0.01)


async def publish(transport: QueueTransport, name: str) -> int | QueueError:
    stored: asyncio.Future[int | QueueError] = asyncio.get_running_loop().create_future()
    await transport.publish(Work("work.a", name, name.encode()), stored.set_result)
    async with asyncio.timeout(WAIT_S):
        return await stored


async def pulled(transport: QueueTransport) -> asyncio.Queue[Delivery]:
    came: asyncio.Queue[Delivery] = asyncio.Queue()
    await transport.pull("work", "all", came.put_nowait, credit=100)
    return came


async def next_of(came: asyncio.Queue[Delivery]) -> Delivery:
    async with asyncio.timeout(WAIT_S):
        return await came.get()


async def test_work_on_files_outlives_a_broker_that_is_killed(own_broker: Broker):
    one, other = transport(own_broker.url), transport(own_broker.url)
    await one.open()
    await other.open()
    await one.declare_queue(QUEUE)
    await other.declare_consumer(CONSUMER)
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    box = await one.inbox(inbox.put_nowait)
    came = await pulled(other)
    assert isinstance(await publish(one, "first"), int)
    (await next_of(came)).ack()

    own_broker.kill()
    await wait_for(one, "reconnecting")
    with pytest.raises(QueueError) as refused:
        await publish(one, "meanwhile")
    assert refused.value.failure == "UNAVAILABLE"
    own_broker.start()
    for each in (one, other):
        await wait_for(each, "connected")

    assert isinstance(await publish(one, "second"), int)
    while (delivery := await next_of(came)).payload != b"second":
        delivery.ack()
    delivery.ack()
    await other.send(box.subject, b"still here")
    async with asyncio.timeout(WAIT_S):
        assert (await inbox.get()).payload == b"still here"
    await one.close()
    await other.close()


async def test_a_broker_that_stands_still_with_megabytes_on_their_way_is_left(own_broker: Broker):
    one = transport(own_broker.url)
    await one.open()
    await one.declare_queue(QUEUE)
    own_broker.signal(signal.SIGSTOP)
    answers: asyncio.Queue[int | QueueError] = asyncio.Queue()
    for number in range(20):
        await one.publish(Work("work.a", f"{number}", bytes(1_000_000)), answers.put_nowait)

    await wait_for(one, "reconnecting")
    async with asyncio.timeout(WAIT_S):
        told = [await answers.get() for _ in range(20)]
    assert {each.failure for each in told if isinstance(each, QueueError)} == {"UNAVAILABLE"}

    own_broker.signal(signal.SIGCONT)
    await wait_for(one, "connected")
    assert isinstance(await publish(one, "after"), int)
    await one.close()


async def test_a_stop_of_this_process_is_not_taken_for_one_of_the_broker(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sie_nats.connection.STALE_S", 1.0)
    monkeypatch.setattr("sie_nats.connection.CHECK_S", 0.05)
    monkeypatch.setattr("sie_nats.transport.STORED_S", 0.2)
    states: list[str] = []
    one = transport(own_broker.url)
    await one.open(states.append)
    await one.declare_queue(QUEUE)
    own_broker.signal(signal.SIGSTOP)
    async with asyncio.timeout(WAIT_S):
        while not one._connection.client._pongs:  # type: ignore[attr-defined] # noqa: ASYNC110 - the watchdog asks
            await asyncio.sleep(0.01)
    stored: asyncio.Future[int | QueueError] = asyncio.get_running_loop().create_future()
    await one.publish(Work("work.a", "before", b""), stored.set_result)
    threading.Timer(0.2, own_broker.signal, (signal.SIGCONT,)).start()
    time.sleep(2.0)  # noqa: ASYNC251 - this process stands still
    async with asyncio.timeout(WAIT_S):
        assert isinstance(await stored, int)
    await asyncio.sleep(0.2)
    assert states == ["connected"]
    await one.close()


async def test_another_broker_that_is_named_serves_instead(own_broker: Broker, broker: Broker):
    one = transport(f"{own_broker.url},{broker.url}")
    await one.open()
    for each in (own_broker, broker):
        direct = transport(each.url)
        await direct.open()
        await direct.declare_queue(QUEUE)
        await direct.close()
    (serving,) = [each for each in (own_broker, broker) if str(each.port) in connected_to(one)]
    serving.signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(WAIT_S):
            # A signal takes effect soon: the first messages may still be stored.
            while not isinstance(await stored(one), int) or str(serving.port) in connected_to(one):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        serving.signal(signal.SIGCONT)
    await one.close()


def connected_to(transport: QueueTransport) -> str:
    return str(transport._connection.client.connected_url)  # type: ignore[attr-defined]


async def stored(transport: QueueTransport) -> int | QueueError:
    try:
        return await publish(transport, "moved")
    except QueueError as error:
        return error


async def test_a_consumer_that_vanished_is_made_again(own_broker: Broker):
    one = transport(own_broker.url)
    await one.open()
    await one.declare_queue(QUEUE)
    await one.declare_consumer(CONSUMER)
    came = await pulled(one)
    connection = one._connection  # type: ignore[attr-defined]
    await connection.ask("CONSUMER.DELETE.work.all")
    assert isinstance(await publish(one, "afterwards"), int)
    assert (await next_of(came)).payload == b"afterwards"
    await one.close()


async def test_a_consumer_that_an_older_release_keeps_on_files_is_pulled_as_it_is(own_broker: Broker):
    one, client = transport(own_broker.url), Client()
    await one.open()
    await one.declare_queue(QUEUE)
    await client.connect(own_broker.url)
    config = {"durable_name": "all", "filter_subject": "work.*", "ack_policy": "explicit"}
    asked = json.dumps({"stream_name": "work", "config": config}).encode()
    answer = await client.request("$JS.API.CONSUMER.CREATE.work.all.work.*", asked)
    assert "error" not in json.loads(answer.data)
    await client.close()
    await one.declare_consumer(CONSUMER)
    came = await pulled(one)
    await publish(one, "first")
    assert (await next_of(came)).payload == b"first"
    await one.close()


async def test_callbacks_that_raise_do_not_keep_it_from_coming_back(own_broker: Broker):
    def fails(value: object) -> None:
        raise RuntimeError("a callback of its user")

    one = transport(own_broker.url)
    await one.open(fails)
    await one.declare_queue(QUEUE)
    await one.declare_consumer(CONSUMER)
    came = await pulled(one)
    own_broker.signal(signal.SIGSTOP)
    answered: asyncio.Future[int | QueueError] = asyncio.get_running_loop().create_future()
    await one.publish(Work("work.a", "fails", b""), fails)
    await one.publish(Work("work.a", "told", b""), answered.set_result)
    own_broker.kill()
    async with asyncio.timeout(WAIT_S):
        assert isinstance(await answered, QueueError)
    own_broker.start()
    await wait_for(one, "connected")
    assert isinstance(await publish(one, "afterwards"), int)
    while (await next_of(came)).payload != b"afterwards":
        pass
    await one.close()


async def test_a_client_whose_sending_task_ended_is_connected_anew(broker: Broker):
    """nats-py ends it on what it did not foresee, and its own round trip calls that well."""
    one = transport(broker.url)
    await one.open()
    client = one._connection.client
    client._flusher_task.cancel()
    states: asyncio.Queue[str] = asyncio.Queue()
    one._on_state = states.put_nowait
    async with asyncio.timeout(WAIT_S):
        assert [await states.get(), await states.get()] == ["reconnecting", "connected"]
    came: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    await one.subscribe("told", came.set_result)
    await one.send("told", b"anew")
    async with asyncio.timeout(WAIT_S):
        assert (await came).payload == b"anew"
    await one.close()


async def test_a_look_at_the_connection_that_fails_is_not_the_last(broker: Broker, caplog: pytest.LogCaptureFixture):
    one, looked = transport(broker.url), asyncio.Event()
    await one.open()
    look = one._connection._look

    async def fails_once(served: asyncio.StreamWriter | None) -> asyncio.StreamWriter | None:
        if "could not be looked at" not in caplog.text:
            raise RuntimeError("unforeseen")
        looked.set()
        return await look(served)

    one._connection._look = fails_once
    async with asyncio.timeout(WAIT_S):
        await looked.wait()
    assert "unforeseen" in caplog.text
    await one.close()


async def test_a_store_is_away_while_the_connection_is_made_again(own_broker: Broker):
    one = transport(own_broker.url)
    await one.open()
    own_broker.kill()
    await wait_for(one, "reconnecting")
    with pytest.raises(QueueError, match="is reconnecting") as told:
        await one.key_value("store")
    assert told.value.failure == "UNAVAILABLE"
    await one.close()


async def test_a_broker_that_stands_still_does_not_hold_up_the_end(own_broker: Broker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sie_nats.pulling.CLOSE_S", 0.05)
    monkeypatch.setattr("sie_nats.connection.CLOSE_S", 0.05)
    one = transport(own_broker.url)
    await one.open()
    await one.declare_queue(QUEUE)
    await one.declare_consumer(CONSUMER)
    await pulled(one)
    own_broker.signal(signal.SIGSTOP)
    await one.close()
    assert one.state == "closed"


async def test_work_that_waits_is_known_to_be_there_and_none_of_it_is_read(own_broker: Broker):
    one = transport(own_broker.url)
    await one.open()
    await one.declare_queue(QUEUE)
    await one.declare_consumer(CONSUMER)
    watching, asked = Client(), Counter[str]()
    await watching.connect(own_broker.url)

    async def count(message: Msg) -> None:
        asked[".".join(message.subject.split(".")[2:4])] += 1

    await watching.subscribe("$JS.API.>", cb=count)
    sequences = [await publish(one, f"{number}") for number in range(50)]
    pull = await one.pull("work", "all", (came := asyncio.Queue[Delivery]()).put_nowait, credit=1)
    given = await next_of(came)
    asked.clear()
    waiting = [await one.waits_for("work", int(str(each)), "all") for each in sequences]
    await watching.flush()
    assert waiting == [False] + [True] * 49
    assert await one.holds_work("work", given.sequence)
    assert asked["CONSUMER.INFO"] <= 10, "one answer tells of all that wait for a consumer"
    assert given.sequence == sequences[0]
    await pull.close()
    await watching.request("$JS.API.STREAM.DELETE.work", b"")
    await one.declare_queue(QUEUE)
    await one.declare_consumer(CONSUMER)
    async with asyncio.timeout(WAIT_S):  # what was known of the consumer is asked anew before long
        while await one.waits_for("work", int(str(sequences[-1])), "all"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await watching.close()
    await one.close()


async def test_what_is_handed_back_while_its_pull_ends_is_given_to_another(own_broker: Broker):
    """The broker gives some of it to the ending pull again, until it sees the end."""
    one, other = transport(own_broker.url), transport(own_broker.url)
    await one.open()
    await other.open()
    await one.declare_queue(QUEUE)
    await one.declare_consumer(ConsumerSettings("work", "all", "work.*", ack_wait_s=600.0))
    for sent in range(10):
        came, again = asyncio.Queue[Delivery](), asyncio.Queue[Delivery]()
        ending = await one.pull("work", "all", came.put_nowait, credit=200)
        for number in range(100):
            await publish(one, f"{sent}-{number}")
        held = [await next_of(came) for _ in range(100)]
        pull = await other.pull("work", "all", again.put_nowait, credit=200)
        for each in held:
            each.nak()
        await ending.close()
        for _ in held:
            (await next_of(again)).ack()
        await pull.close()
    await one.close()
    await other.close()


async def test_a_stop_of_this_process_asks_for_nothing_twice(own_broker: Broker, monkeypatch: pytest.MonkeyPatch):
    """Two standing requests would bring more than the credit; what is handed back counts as delivered."""
    monkeypatch.setattr("sie_nats.pulling.HEARTBEAT_S", 0.1)
    one = transport(own_broker.url)
    await one.open()
    await one.declare_queue(QUEUE)
    await one.declare_consumer(CONSUMER)
    came: asyncio.Queue[Delivery] = asyncio.Queue()
    pull = await one.pull("work", "all", came.put_nowait, credit=5)
    await publish(one, "first")
    (await next_of(came)).ack()
    time.sleep(0.5)  # noqa: ASYNC251 - this process stands still
    await asyncio.sleep(0.3)  # it looks whether its requests stand
    for number in range(8):
        await publish(one, f"{number}")
    attempts = []
    for _ in range(8):
        delivery = await next_of(came)
        attempts.append(delivery.attempt)
        delivery.ack()
        pull.add_credit(1)
    assert attempts == [1] * 8
    await one.close()


async def test_a_queue_that_is_emptied_again_and_again_keeps_to_one_file(own_broker: Broker):
    """Each new file would cost a request that is alone half a millisecond."""
    one = transport(own_broker.url)
    await one.open()
    await one.declare_queue(QUEUE)
    await one.declare_consumer(CONSUMER)
    came: asyncio.Queue[Delivery] = asyncio.Queue()
    pull = await one.pull("work", "all", came.put_nowait, credit=5)

    async def pass_through(names: Iterable[int]) -> set[str]:
        for name in names:
            await publish(one, f"{name}")
            (await next_of(came)).ack()
            pull.add_credit(1)
            async with asyncio.timeout(WAIT_S):
                while await one.backlog("work"):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.001)
        return {file.name for file in own_broker.folder.glob("js/**/streams/work/msgs/*.blk")}

    # While the first ones pass, the queue is not known to be in use.
    begun = await pass_through(range(3))
    assert len(begun) == 1
    assert await pass_through(range(3, 20)) == begun
    assert came.empty()
    await one.close()


class OtherParser(Parser):
    """That of a client library which hands messages over by another method."""

    async def parse(self, data: bytes = b"") -> None:
        return None


async def test_a_queue_for_which_the_brokers_disk_has_no_room_is_told_with_the_remedy(tmp_path: Path):
    small = Broker(tmp_path, f'jetstream {{ store_dir: "{tmp_path}/js", max_file_store: 64MB }}')
    small.start()
    one = transport(small.url)
    await one.open()
    with pytest.raises(
        QueueError, match=r"no room for the queue 'work', which may hold 256 MB .*max_file_store"
    ) as told:
        await one.declare_queue(QUEUE)
    assert told.value.failure == "UNAVAILABLE"
    await one.close()
    small.kill()


def test_a_client_library_of_another_shape_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as changed:
        changed.setattr("sie_nats.client.Parser", OtherParser)
        with pytest.raises(ValueError, match=r"nats-py \S+ cannot be used: its parser hands messages over in another"):
            transport("nats://host")
    with monkeypatch.context() as changed:
        changed.delattr(Client, "_process_op_err")
        with pytest.raises(ValueError, match="it has no _process_op_err"):
            transport("nats://host")
    assert transport("nats://host").state == "closed"


async def test_who_may_not_is_told_and_no_secret_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    broker = Broker(tmp_path, 'authorization { user: "gateway", password: "open-sesame" }')
    broker.start()
    try:
        with pytest.raises(QueueError) as refused:
            await transport(broker.url, user="gateway", password="wrong-horse").open()
        assert refused.value.failure == "DENIED"
        with_url = transport(broker.url.replace("//", "//gateway:open-sesame@"))
        await with_url.open()
        assert with_url.state == "connected"
        assert "sesame" not in with_url.url
        await with_url.close()
    finally:
        broker.kill()
    assert "sesame" not in caplog.text + str(refused.value)
    assert "horse" not in caplog.text + str(refused.value)


async def test_nobody_there_is_told_in_time():
    with pytest.raises(QueueError) as refused:
        await transport("nats://127.0.0.1:9").open()
    assert refused.value.failure == "UNAVAILABLE"


async def test_who_logs_in_by_no_name_has_the_inboxes_that_the_broker_permits(tmp_path: Path):
    """As by a certificate: the broker knows a user then, and the client no name."""
    may = '{ subscribe: ["_INBOX.gateway.one.>"] }'
    broker = Broker(tmp_path, f"no_auth_user: one, authorization {{ users: [{{ user: one, permissions: {may} }}] }}")
    broker.start()
    try:
        for prefix, is_permitted in (("_INBOX.gateway.one", True), ("_INBOX", False)):
            one = transport(broker.url, inbox_prefix=prefix)
            try:
                await one.open()
                came: asyncio.Queue[Message] = asyncio.Queue()
                box = await one.inbox(came.put_nowait)
                await one.send(box.subject, b"mine")
                async with asyncio.timeout(WAIT_S if is_permitted else 1):
                    assert (await came.get()).payload == b"mine"
                assert box.subject.startswith("_INBOX.gateway.one.")
            except (QueueError, TimeoutError):
                assert not is_permitted
            finally:
                await one.close()
    finally:
        broker.kill()


def test_a_login_in_the_url_is_unquoted():
    options = Options.read("nats://me%40home:p%40ss%3A@host:4222", {})
    assert (options.user, options.password, options.url) == ("me@home", "p@ss:", "nats://host:4222")


@pytest.mark.parametrize(
    ("url", "settings", "told"),
    [
        ("nats://", {}, "no URL"),
        ("http://host", {}, "no URL"),
        ("nats://host", {"storage": "tape"}, "SIE_NATS_STORAGE is 'tape'"),
        ("nats://host", {"replicas": "2"}, "SIE_NATS_REPLICAS is '2'"),
        ("nats://host", {"tls_cert": "a.pem"}, "go together"),
        ("nats://host", {"tls_ca": "/absent.pem"}, "cannot be used"),
        ("nats://host", {"colour": "red"}, "'colour' is no setting"),
        ("nats://host", {"inbox_prefix": "_INBOX.*"}, "SIE_NATS_INBOX_PREFIX is '_INBOX.*'"),
        ("nats://host", {"inbox_prefix": "mine.one"}, "SIE_NATS_INBOX_PREFIX is 'mine.one'"),
        ("nats://user:secret@", {}, "no URL like"),
    ],
)
def test_settings_that_cannot_be_used_are_named_without_secrets(url: str, settings: dict[str, str], told: str):
    with pytest.raises(ValueError, match=told) as refused:
        transport(url, **settings)
    assert "secret" not in str(refused.value)
