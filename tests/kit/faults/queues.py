"""Queue transports, each broken in one way."""

from __future__ import annotations

from dataclasses import replace
from secrets import token_hex
from typing import Any

from sie_fake.broker.queue import InProcessTransport, in_process_transports

from sie_core.contracts import QueueError
from tests.kit.faults.seeding import fault


class Transport(InProcessTransport):
    """A sound transport: to the broker of its own class; faults are made of it."""

    brokers: dict[type, Any] = {}  # noqa: RUF012 - one broker a class

    def __init__(self):
        (factory,) = in_process_transports()
        made = self.brokers.setdefault(type(self), factory.create("memory://t", {}))
        super().__init__("memory://t", made._broker)


@fault("queue transport", "an_id_is_stored_once")
class StoresIdsTwice(Transport):
    async def publish(self, work, on_stored):
        await super().publish(replace(work, id=token_hex(8)), on_stored)


@fault("queue transport", "bounds_refuse_by_type")
class RefusesByText(Transport):
    async def publish(self, work, on_stored):
        def told(answer):
            on_stored(QueueError("UNAVAILABLE", str(answer)) if isinstance(answer, QueueError) else answer)

        await super().publish(work, told)


@fault("queue transport", "bounds_refuse_by_type")
class TakesAnySize(Transport):
    def _fits(self, payload):
        self._there()


@fault("queue transport", "old_work_is_dropped", slow=True)
class KeepsOldWork(Transport):
    async def publish(self, work, on_stored):
        await super().publish(replace(work, ttl_s=None), on_stored)


@fault("queue transport", "no_more_comes_than_credit_allows")
class IgnoresCredit(Transport):
    async def pull(self, queue, consumer, on_delivery, *, credit):
        return await super().pull(queue, consumer, on_delivery, credit=credit + 1)


@fault("queue transport", "work_is_pulled_in_order_and_gone_once_acknowledged", slow=True)
class AcknowledgesNothing(Transport):
    async def pull(self, queue, consumer, on_delivery, *, credit):
        def take(delivery):
            delivery.ack = lambda: None
            on_delivery(delivery)

        return await super().pull(queue, consumer, take, credit=credit)


@fault("queue transport", "a_nak_and_a_silence_bring_it_again", slow=True)
class ForgetsTheSilent(Transport):
    async def declare_consumer(self, settings):
        await super().declare_consumer(replace(settings, ack_wait_s=60.0))


@fault("queue transport", "deliveries_end_at_their_limit")
class DeliversForEver(Transport):
    async def declare_consumer(self, settings):
        await super().declare_consumer(replace(settings, max_deliver=10**6))


@fault("queue transport", "backlog_counts_by_subject")
class CountsTheQueueAlone(Transport):
    async def backlog(self, queue, subject=">"):
        return {queue: sum((await super().backlog(queue, subject)).values())}


@fault("queue transport", "deleted_work_never_comes")
class DeletesNothing(Transport):
    async def delete_work(self, queue, sequence):
        return await self.holds_work(queue, sequence)


@fault("queue transport", "inboxes_and_broadcasts_arrive_in_order", slow=True)
class HearsItsInboxAlone(Transport):
    async def inbox(self, on_message):
        made = await super().inbox(on_message)
        made.pattern = made.pattern[:1]
        return made


@fault("queue transport", "a_store_keeps_and_compares")
class MakesEveryStore(Transport):
    async def key_value(self, name, *, make=True):
        return await super().key_value(name)


@fault("queue transport", "a_journal_keeps_an_order")
class StartsAtOne(Transport):
    async def journal(self, name, *, make=True, first=1):
        return await super().journal(name, make=make)


@fault("queue transport", "a_closed_connection_says_so")
class ClosesInSilence(Transport):
    async def close(self):
        await super().close()
        self._state = "connected"


@fault("queue transport", "consumers_may_not_overlap_and_settings_may_change")
class ChangesNothing(Transport):
    async def declare_queue(self, settings, *, change=True):
        await super().declare_queue(settings, change=False)


@fault("queue transport", None)
class IsSlow(Transport):
    """Waits before each message: a matter of speed, which the kit does not judge."""
