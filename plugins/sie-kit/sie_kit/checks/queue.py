"""The checks of a queue transport, run against the broker of its URL.

A check takes a function that makes another connection to the same broker. One that fails raises AssertionError with the
reason.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, TypeVar

from sie_core.contracts import (
    ConsumerSettings,
    Delivery,
    Entry,
    KeyValue,
    Message,
    QueueError,
    QueueFailure,
    QueueSettings,
    QueueTransport,
    Reading,
    Work,
)

Connect = Callable[[], QueueTransport]
T = TypeVar("T")
CHECK_LIMIT_S = 60.0
"""Seconds that one check may take."""
WAIT_S = 10.0
"""Seconds that a check waits for a message that has to come."""
ACK_WAIT_S = 0.5
"""Seconds after which work that nobody acknowledges is delivered again."""


class _Bench:
    """Two connections, a queue of its own with subjects `NAME.a` and `NAME.b`, and a consumer of `NAME.a`."""

    def __init__(self, here: QueueTransport, there: QueueTransport, name: str) -> None:
        self.here, self.there, self.name = here, there, name
        self.arrived: asyncio.Queue[Delivery] = asyncio.Queue()

    async def declare(self, *, change: bool = True, **bounds: Any) -> None:
        settings = QueueSettings(self.name, (f"{self.name}.*",), max_bytes=1 << 22, **bounds)
        await self.here.declare_queue(settings, change=change)
        await self.consumer("a")

    async def consumer(self, token: str, **settings: Any) -> None:
        given = {"ack_wait_s": ACK_WAIT_S} | settings
        await self.there.declare_consumer(ConsumerSettings(self.name, token, f"{self.name}.{token}", **given))

    async def store(self, text: str, token: str = "a", **fields: Any) -> int:
        """Publish a message with a unique id and return its sequence."""
        work = Work(f"{self.name}.{token}", fields.pop("id", secrets.token_hex(8)), text.encode(), **fields)
        stored = await within(self.publish(work))
        if isinstance(stored, QueueError):
            raise stored
        return stored

    async def publish(self, work: Work) -> int | QueueError:
        answered: asyncio.Future[int | QueueError] = asyncio.get_running_loop().create_future()
        await self.here.publish(work, answered.set_result)
        return await answered

    async def next(self) -> Delivery:
        return await within(self.arrived.get())

    async def drained(self) -> bool:
        """Whether nothing is left in the queue, given time."""
        for _ in range(100):
            if not await self.here.backlog(self.name):
                return True
            await asyncio.sleep(0.02)
        return False


async def within(awaitable: Awaitable[T]) -> T:
    """Wait, bounded."""
    try:
        async with asyncio.timeout(WAIT_S):
            return await awaitable
    except TimeoutError:
        raise AssertionError(f"nothing came within {WAIT_S:g} s") from None


@asynccontextmanager
async def bench(connect: Connect, **bounds: Any) -> AsyncIterator[_Bench]:
    """Open two connections and a queue between them."""
    here, there = connect(), connect()
    await within(here.open())
    await within(there.open())
    try:
        made = _Bench(here, there, "check_" + secrets.token_hex(6))
        await made.declare(**bounds)
        yield made
    finally:
        await here.close()
        await there.close()


@asynccontextmanager
async def refused(failure: QueueFailure) -> AsyncIterator[None]:
    """Expect a QueueError of one kind."""
    told: QueueError | None = None
    try:
        yield
    except QueueError as error:
        told = error
    assert told is not None, f"it is not refused as {failure}"
    assert told.failure == failure, f"it fails with {told.failure}, not {failure}: {told}"


async def work_is_pulled_in_order_and_gone_once_acknowledged(connect: Connect) -> None:
    """Messages come in the order they were stored, each once, and leave the queue with their ack."""
    async with bench(connect) as queue:
        sequences = [await queue.store(f"{number}") for number in range(20)]
        await queue.there.pull(queue.name, "a", queue.arrived.put_nowait, credit=20)
        came = [await queue.next() for _ in sequences]
        assert [each.payload.decode() for each in came] == [f"{number}" for number in range(20)], "out of order"
        assert [each.sequence for each in came] == sequences, "sequences differ from those told when stored"
        assert {each.attempt for each in came} == {1}
        assert [each.waiting for each in came] == list(range(19, -1, -1)), "what was not delivered yet is told wrongly"
        assert sum((await queue.here.backlog(queue.name)).values()) == 20, "what is not acknowledged is not counted"
        for each in came:
            each.ack()
        assert await queue.drained(), "acknowledged work stays in the queue"


async def no_more_comes_than_credit_allows(connect: Connect) -> None:
    """Delivery is bounded by credit; more credit brings more."""
    async with bench(connect) as queue:
        for number in range(5):
            await queue.store(f"{number}")
        await queue.consumer("a", ack_wait_s=WAIT_S)
        pull = await queue.there.pull(queue.name, "a", queue.arrived.put_nowait, credit=2)
        assert [(await queue.next()).payload for _ in range(2)] == [b"0", b"1"]
        await queue.there.backlog(queue.name)
        assert queue.arrived.empty(), "more came than there was credit"
        assert pull.credit == 0
        pull.add_credit(3)
        assert [(await queue.next()).payload for _ in range(3)] == [b"2", b"3", b"4"]


async def what_waits_is_what_nobody_was_given(connect: Connect) -> None:
    """A delivery tells what its consumer has not delivered to anyone; work of others and what comes again is none."""
    async with bench(connect) as queue:
        await queue.consumer("a", ack_wait_s=WAIT_S)
        await queue.consumer("b", ack_wait_s=WAIT_S)
        for _ in range(4):
            await queue.store("x")
            await queue.store("y", "b")
        first = await queue.there.pull(queue.name, "a", queue.arrived.put_nowait, credit=1)
        one = await queue.next()
        await queue.here.pull(queue.name, "a", queue.arrived.put_nowait, credit=1)
        other = await queue.next()
        assert (one.waiting, other.waiting) == (3, 2)
        other.ack()
        one.nak()
        first.add_credit(3)
        last = [await queue.next() for _ in range(3)]
        assert [each.waiting for each in last if each.attempt == 1] == [1, 0]
        assert [each.waiting <= 2 for each in last if each.attempt == 2] == [True], "what comes again counts as waiting"


async def a_nak_and_a_silence_bring_it_again(connect: Connect) -> None:
    """A refused message comes again at once, a silent one after the wait, one in progress later still."""
    async with bench(connect) as queue:
        await queue.store("again")
        await queue.there.pull(queue.name, "a", queue.arrived.put_nowait, credit=10)
        first = await queue.next()
        first.nak()
        second = await queue.next()
        assert (second.attempt, second.payload) == (2, b"again")
        third = await queue.next()
        assert third.attempt == 3, "silence does not bring it again"
        for _ in range(6):
            third.in_progress()
            await asyncio.sleep(ACK_WAIT_S / 3)
        assert queue.arrived.empty(), "it came again though it was in progress"
        third.nak(0.2)
        (await queue.next()).ack()
        assert await queue.drained()


async def deliveries_end_at_their_limit(connect: Connect) -> None:
    """A message is not delivered oftener than the consumer allows."""
    async with bench(connect) as queue:
        await queue.consumer("b", max_deliver=2)
        await queue.store("poison", "b")
        await queue.store("after", "b")
        await queue.there.pull(queue.name, "b", queue.arrived.put_nowait, credit=10)
        came: list[tuple[bytes, int]] = []
        while len(came) < 3:
            delivery = await queue.next()
            came.append((delivery.payload, delivery.attempt))
            delivery.ack() if delivery.payload == b"after" else delivery.nak()
        await asyncio.sleep(2 * ACK_WAIT_S)
        assert sorted(came) == [(b"after", 1), (b"poison", 1), (b"poison", 2)]
        assert queue.arrived.empty(), "a message came oftener than allowed"


async def an_id_is_stored_once(connect: Connect) -> None:
    """A second publication of an id gives the old sequence and stores nothing."""
    async with bench(connect) as queue:
        first, second = [await queue.store("once", id="same") for _ in range(2)]
        assert first == second, "a repeated id has another sequence"
        assert await queue.here.backlog(queue.name) == {f"{queue.name}.a": 1}


async def bounds_refuse_by_type(connect: Connect) -> None:
    """A full subject, a full queue, an oversized message and an unstored subject each have their own error."""
    async with bench(connect, max_messages=5, max_messages_per_subject=3) as queue:
        for _ in range(3):
            await queue.store("x")
        async with refused("FULL"):
            await queue.store("x")
        for _ in range(2):
            await queue.store("x", "b")
        async with refused("FULL"):
            await queue.store("x", "b")
        async with refused("TOO_LARGE"):
            await queue.here.publish(Work(f"{queue.name}.a", "large", bytes(queue.here.max_payload + 1)), print)
        async with refused("TOO_LARGE"):
            await queue.here.send("anywhere", bytes(queue.here.max_payload + 1))
        stored = await within(queue.publish(Work(f"nobody_{queue.name}.a", "lost", b"")))
        assert isinstance(stored, QueueError), "a subject of no queue is stored"
        assert stored.failure == "NOT_FOUND", stored.failure


async def old_work_is_dropped(connect: Connect) -> None:
    """A message is dropped when its time to live is over."""
    async with bench(connect) as queue:
        sequence = await queue.store("brief", ttl_s=1)
        await queue.store("long")
        for _ in range(100):
            if not await queue.here.holds_work(queue.name, sequence):
                break
            await asyncio.sleep(0.05)
        await queue.there.pull(queue.name, "a", queue.arrived.put_nowait, credit=10)
        assert (await queue.next()).payload == b"long", "work came whose time was over"


async def deleted_work_never_comes(connect: Connect) -> None:
    """A message is deleted by its sequence, once, waiting or delivered."""
    async with bench(connect) as queue:
        sequences = [await queue.store(text) for text in ("cancelled", "kept")]
        assert await queue.here.holds_work(queue.name, sequences[0])
        assert await queue.here.delete_work(queue.name, sequences[0])
        assert not await queue.here.holds_work(queue.name, sequences[0])
        assert not await queue.here.delete_work(queue.name, sequences[0]), "it can be deleted twice"
        await queue.there.pull(queue.name, "a", queue.arrived.put_nowait, credit=10)
        assert (await queue.next()).payload == b"kept"
        assert await queue.here.delete_work(queue.name, sequences[1])
        await asyncio.sleep(2 * ACK_WAIT_S)
        assert queue.arrived.empty(), "deleted work was delivered again"


async def a_closed_pull_gives_back_what_it_had_not_handed_over(connect: Connect) -> None:
    """After `close` others get the work at once."""
    async with bench(connect) as queue:
        await queue.consumer("a", ack_wait_s=WAIT_S)
        first = await queue.there.pull(queue.name, "a", queue.arrived.put_nowait, credit=1)
        await queue.store("0")
        (await queue.next()).nak()
        await first.close()
        await queue.here.pull(queue.name, "a", queue.arrived.put_nowait, credit=5)
        assert (await queue.next()).payload == b"0"


async def backlog_counts_by_subject(connect: Connect) -> None:
    """Counts are by subject, and of those a pattern matches."""
    async with bench(connect) as queue:
        for token, number in (("a", 3), ("b", 2)):
            for _ in range(number):
                await queue.store("x", token)
        assert await queue.here.backlog(queue.name) == {f"{queue.name}.a": 3, f"{queue.name}.b": 2}
        assert await queue.here.backlog(queue.name, f"{queue.name}.b") == {f"{queue.name}.b": 2}


async def consumers_may_not_overlap_and_settings_may_change(connect: Connect) -> None:
    """A second consumer of the same work is refused as `CONFIG`; a queue declared with other bounds takes them on.

    Declared with `change=False` it keeps those that it has.
    """
    async with bench(connect, max_messages=1) as queue:
        async with refused("CONFIG"):
            await queue.there.declare_consumer(ConsumerSettings(queue.name, "all", f"{queue.name}.>"))
        await queue.store("x")
        async with refused("FULL"):
            await queue.store("x")
        await queue.declare(max_messages=2)
        await queue.declare(max_messages=1, change=False)
        await queue.store("x")
        async with refused("NOT_FOUND"):
            await queue.there.pull(queue.name, "nobody", queue.arrived.put_nowait, credit=1)


async def inboxes_and_broadcasts_arrive_in_order(connect: Connect) -> None:
    """An inbox receives messages to it and below it, a pattern those that it matches; all in order."""
    async with bench(connect) as queue:
        took: list[asyncio.Queue[Message]] = [asyncio.Queue() for _ in range(3)]
        inbox = await queue.here.inbox(took[0].put_nowait)
        for transport, box in ((queue.here, took[1]), (queue.there, took[2])):
            await transport.subscribe(f"{queue.name}.news.>", box.put_nowait)
        await queue.here.backlog(queue.name)
        for number in range(50):
            await queue.there.send(f"{inbox.subject}.{number}", b"%d" % number, reply="back")
        for number in range(50):
            message = await within(took[0].get())
            assert (message.payload, message.reply) == (b"%d" % number, "back")
            assert message.subject == f"{inbox.subject}.{number}"
        await queue.there.send(f"{queue.name}.news.one", b"all")
        for box in took[1:]:
            assert (await within(box.get())).payload == b"all"
        await inbox.close()
        await queue.there.send(inbox.subject, b"late")
        await queue.there.send(f"{queue.name}.news.two", b"last")
        assert (await within(took[1].get())).payload == b"last"
        assert took[0].empty(), "a closed inbox takes messages"


async def a_store_keeps_and_compares(connect: Connect) -> None:
    """Of many writers of an entry at one revision, one wins."""
    async with bench(connect) as queue:
        async with refused("NOT_FOUND"):
            await queue.here.key_value(f"{queue.name}_kv", make=False)
        store = await queue.here.key_value(f"{queue.name}_kv")
        other = await queue.there.key_value(f"{queue.name}_kv", make=False)
        assert await store.get("a.one") is None
        revision = await store.compare_and_set("a.one", b"1", None)
        async with refused("CONFLICT"):
            await other.compare_and_set("a.one", b"2", None)
        found = await other.get("a.one")
        assert found is not None
        assert (found.value, found.revision) == (b"1", revision)
        results = await asyncio.gather(
            *(each.compare_and_set("a.one", b"%d" % n, revision) for n, each in enumerate((store, other) * 5)),
            return_exceptions=True,
        )
        assert sum(isinstance(each, int) for each in results) == 1, "not one writer of many won"
        await store.put("b.two", b"2")
        await other.delete("a.one")
        await other.delete("a.one")
        assert await store.get("a.one") is None
        await store.compare_and_set("a.one", b"back", None)


async def an_entry_ends_by_the_broker_s_clock_unless_it_is_written_again(connect: Connect) -> None:
    """A time to live begins anew with each write; an entry whose time is over is gone, and can be made again."""
    async with bench(connect) as queue:
        store = await queue.here.key_value(f"{queue.name}_kv")
        revision = await store.compare_and_set("lease.a", b"1", None, ttl_s=1)
        await store.put("lease.b", b"1", ttl_s=1)
        await store.put("stays", b"1")
        await asyncio.sleep(0.6)
        revision = await store.compare_and_set("lease.a", b"2", revision, ttl_s=1)
        await store.put("lease.b", b"2")
        await asyncio.sleep(0.6)
        found = await store.get("lease.a")
        assert found is not None, "an entry ended although it was written again"
        assert (found.value, found.revision) == (b"2", revision)
        await _until_gone(store, "lease.a")
        assert await store.get("lease.b") is not None, "an entry ended by the time that a former write gave it"
        assert await store.get("stays") is not None
        async with refused("CONFLICT"):
            await store.compare_and_set("lease.a", b"3", revision, ttl_s=1)
        await store.compare_and_set("lease.a", b"4", None, ttl_s=60)
        async with refused("CONFLICT"):
            await store.compare_and_set("lease.a", b"5", None)
        await store.delete("lease.a")
        await store.put("lease.a", b"6", ttl_s=60)


async def _until_gone(store: KeyValue, key: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while await store.get(key) is not None:  # noqa: ASYNC110 - without a watch nobody tells
            await asyncio.sleep(0.05)


async def a_watch_tells_what_there_is_and_every_change(connect: Connect) -> None:
    """It tells the entries at once, and whatever is written, deleted or ends; once closed, nothing."""
    async with bench(connect) as queue:
        store = await queue.here.key_value(f"{queue.name}_kv")
        other = await queue.there.key_value(f"{queue.name}_kv")
        told: list[dict[str, bytes]] = []
        some: list[dict[str, bytes]] = []

        def values(entries: Mapping[str, Entry]) -> dict[str, bytes]:
            return {key: entry.value for key, entry in entries.items()}

        async def until(wanted: dict[str, bytes], took: list[dict[str, bytes]]) -> None:
            async with asyncio.timeout(WAIT_S):
                while took[-1] != wanted:  # noqa: ASYNC110 - a failed wait shows what came
                    await asyncio.sleep(0.01)

        empty = await store.watch(lambda entries: told.append(values(entries)))
        assert told == [{}], "an empty store is not told before `watch` returns"
        await empty.close()
        for number in range(3):
            await other.put("gone", b"%d" % number)
        await other.put("lease.a", b"1", ttl_s=3)
        await other.put("stays", b"1")
        await other.delete("gone")
        there = {"lease.a": b"1", "stays": b"1"}
        first = await store.watch(lambda entries: told.append(values(entries)))
        second = await store.watch(lambda entries: some.append(values(entries)), "lease.*")
        assert told[-1] == there, "what there is is not told before `watch` returns"
        assert some == [{"lease.a": b"1"}]
        revision = await other.put("stays", b"2")
        await until({**there, "stays": b"2"}, told)
        await until({"stays": b"2"}, told)
        assert some[-1] == {}, "the end of an entry is not told"
        await other.compare_and_set("stays", b"3", revision)
        await other.compare_and_set("lease.a", b"4", None)
        await until({"lease.a": b"4"}, some)
        await other.delete("lease.a")
        await until({}, some)
        await first.close()
        await first.close()
        before = len(told)
        await other.put("lease.b", b"5")
        await until({"lease.b": b"5"}, some)
        assert len(told) == before, "a closed watch tells"
        await second.close()


async def a_journal_keeps_an_order(connect: Connect) -> None:
    """Of many writers at one number, one wins; a reader gets the last message of each key, in order."""
    async with bench(connect) as queue:
        async with refused("NOT_FOUND"):
            await queue.here.journal(f"{queue.name}_log", make=False)
        journal = await queue.here.journal(f"{queue.name}_log")
        other = await queue.there.journal(f"{queue.name}_log")
        assert ((first := await other.read()).last, first.records) == (0, ())
        assert await journal.append("a.one", b"1", after=0) == 1
        async with refused("CONFLICT"):  # another key of the same journal
            await other.append("b.two", b"2", after=0)
        results = await asyncio.gather(
            *(each.append(f"c.{n}", b"%d" % n, after=1) for n, each in enumerate((journal, other) * 5)),
            return_exceptions=True,
        )
        assert sum(isinstance(each, int) for each in results) == 1, "not one writer of many won"
        for number in range(2, 602):
            assert await journal.append(f"d.{number % 300}", b"%d" % number, after=number) == number + 1
        assert await other.append("a.one", b"", after=602) == 603
        reading = await other.read()
        found = reading.records
        assert reading.last == 603
        assert [each.sequence for each in found] == [2, *range(303, 604)]
        assert (found[-1].key, found[-1].payload) == ("a.one", b"")
        assert (found[1].key, found[1].payload) == ("d.2", b"302")
        assert await other.read(601) == Reading(603, found[-2:], first.created)
        assert await other.read(603) == await other.read(700) == Reading(603, (), first.created)
        late = await queue.here.journal(f"{queue.name}_late", first=100)
        again = await (await queue.there.journal(f"{queue.name}_late", first=7)).read()
        assert (again.last, again.records) == (99, ())
        assert again.created != first.created, "two journals are not told apart"
        assert await late.append("a", b"", after=99) == 100


async def a_callback_that_raises_costs_nothing_else(connect: Connect) -> None:
    """The next message arrives all the same."""
    async with bench(connect) as queue:
        came: asyncio.Queue[bytes] = asyncio.Queue()

        def take(message: Message) -> None:
            came.put_nowait(message.payload)
            raise RuntimeError("a fault of the user of the transport")

        inbox = await queue.here.inbox(take)
        for text in (b"1", b"2"):
            await queue.here.send(inbox.subject, text)
        assert [await within(came.get()) for _ in range(2)] == [b"1", b"2"]


async def a_closed_connection_says_so(connect: Connect) -> None:
    """Closing twice raises nothing; later calls raise `UNAVAILABLE`."""
    async with bench(connect) as queue:
        states: list[str] = []
        third = connect()
        await third.open(states.append)
        assert third.state == "connected"
        await third.close()
        await third.close()
        assert third.state == states[-1] == "closed"
        async with refused("UNAVAILABLE"):
            await third.send("anywhere", b"")
        async with refused("UNAVAILABLE"):
            await third.publish(Work(f"{queue.name}.a", "late", b""), print)


def _run(check: Callable[[Connect], Awaitable[None]]) -> Callable[[Connect], None]:
    @wraps(check)
    def run(connect: Connect) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(CHECK_LIMIT_S):
                await check(connect)

        asyncio.run(bounded())

    return run


QUEUE_CHECKS: Sequence[Callable[[Connect], None]] = tuple(
    map(
        _run,
        (
            work_is_pulled_in_order_and_gone_once_acknowledged,
            no_more_comes_than_credit_allows,
            what_waits_is_what_nobody_was_given,
            a_nak_and_a_silence_bring_it_again,
            deliveries_end_at_their_limit,
            an_id_is_stored_once,
            bounds_refuse_by_type,
            old_work_is_dropped,
            deleted_work_never_comes,
            a_closed_pull_gives_back_what_it_had_not_handed_over,
            backlog_counts_by_subject,
            consumers_may_not_overlap_and_settings_may_change,
            inboxes_and_broadcasts_arrive_in_order,
            a_store_keeps_and_compares,
            an_entry_ends_by_the_broker_s_clock_unless_it_is_written_again,
            a_watch_tells_what_there_is_and_every_change,
            a_journal_keeps_an_order,
            a_callback_that_raises_costs_nothing_else,
            a_closed_connection_says_so,
        ),
    )
)
