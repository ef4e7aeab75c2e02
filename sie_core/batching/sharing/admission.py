"""Who may still queue for a device: whoever finds room, and can be answered by its deadline. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import inf
from typing import Final, Protocol

from sie_core.batching.checked import CheckedPolicy
from sie_core.batching.cost_model import MARGIN, CostModel
from sie_core.batching.sharing.demand import Demand
from sie_core.batching.sharing.in_preparation import InPreparation
from sie_core.batching.sharing.inflow import Inflow
from sie_core.batching.sharing.lateness import Lateness
from sie_core.batching.sharing.lending import LITTLE_S, SHORT_S, Lending
from sie_core.batching.sharing.promises import Promises
from sie_core.batching.sharing.shares import Drain, claimant
from sie_core.contracts import Batch, InferenceError

# While a short request came within so many seconds, no large one holds the device for long: the next short one is as
# likely to come, and would wait for the whole batch.
SHORT_AGAIN_S: Final = 1.0
# A request is large that runs for this many times as long as the shortest one that comes.
LARGE_TIMES: Final = 4.0
# Room that was promised to requests told to come back is not kept free where a request would be answered within so
# many seconds: they may not come, and the device must not idle for them.
FREE_S: Final = 0.1


class Queue(Hashable, Protocol):
    """The queue of one model."""

    @property
    def id(self) -> str:
        """The model's id."""
        ...

    policy: CheckedPolicy


class QueueAdmission:
    """Refuses what the queues of a device cannot take, with the time after which they can.

    Args:
        max_queued_cost: Of all queues together.
    """

    def __init__(self, max_queued_cost: int) -> None:
        self._max_queued_cost = max_queued_cost
        self._drains: defaultdict[Queue, Drain] = defaultdict(Drain)
        # How long batches ran, without what they waited for: what runs shortly is short, however long it had to wait.
        self._runs: defaultdict[Queue, CostModel] = defaultdict(CostModel)
        self._lateness: defaultdict[Queue, Lateness] = defaultdict(Lateness)
        self._in_preparation: defaultdict[Queue, InPreparation] = defaultdict(InPreparation)
        self._promises = Promises()
        self._inflow = Inflow()
        # When a batch began last.
        self._began_at = 0.0
        # When a short request came last, and when to each queue of which little waited.
        self._short_at: float | None = None
        self._short_to: dict[Queue, float] = {}
        # How long the shortest of those took that came one after another.
        self._short_s = 0.0

    def record(self, queue: Queue, batch: Batch, seconds: float, waited_s: float) -> None:
        """Learn from a batch how long it ran, and for how long those behind it have waited for it."""
        loaded, claims = bool(queue.policy.queued_units), queue.policy.claims
        left = [claims.cost_of(who) or 0 for who in {claimant(unit) for unit in batch.units}]
        self._drains[queue].record(batch.cost, waited_s, loaded=loaded, requests=len(left) or 1, left=sum(left))
        self._runs[queue].record(batch.cost, seconds)
        if loaded:
            self._lateness[queue].record(waited_s)

    def ended(self, queue: Queue, late: int, in_time: int) -> None:
        """Learn of requests with a deadline that ended or were dropped."""
        # Where nothing waits any deadline is tried, also one that nobody can meet.
        self._lateness[queue].ended(late if queue.policy.queued_units else 0, in_time)

    def begin_preparing(self, queue: Queue, demand: Demand, now: float) -> None:
        """Count a request before those that are judged by a guess from now on."""
        self._in_preparation[queue].begin(demand, now)

    def end_preparing(self, queue: Queue, demand: Demand) -> None:
        """Count a request no longer that `begin_preparing` may have counted: it is judged again, or ended."""
        if queue in self._in_preparation:
            self._in_preparation[queue].end(demand)

    def forget(self, queue: Queue) -> None:
        """Forget a queue that is not served any more."""
        self._drains.pop(queue, None)
        self._runs.pop(queue, None)
        self._lateness.pop(queue, None)
        self._in_preparation.pop(queue, None)
        self._short_to.pop(queue, None)

    def left_s(self, queue: Queue, batch: Batch, since: float, now: float) -> float:
        """Predict for how long a batch still runs that runs since `since`."""
        predicted = self._drains[queue].seconds(batch.cost) if batch.predicted_s is None else batch.predicted_s
        return max(0.0, predicted - (now - since))

    def longest_s(self, now: float) -> float | None:
        """Return how long requests run that are not large beside those that come; None where no short ones do."""
        return LARGE_TIMES * self._short_s if self._shorts_come(now) else None

    def waiting_s(self, queue: Queue) -> float:
        """Predict how long all that waits in a queue runs; 0 before the first measurement."""
        return self._run_s(queue, queue.policy.queued_cost)

    def shorts_of_others_come(self, queue: Queue, now: float) -> bool:
        """Whether short requests come to other queues just now, of which little waits."""
        return any(self._is_recent(at, now) for other, at in self._short_to.items() if other is not queue)

    def admit(
        self, queue: Queue, queues: Sequence[Queue], demand: Demand, now: float, ahead_s: float, lending: Lending
    ) -> None:
        """Raise `QUEUE_FULL` for a request that finds no room, or would be answered after its deadline.

        Args:
            queue: Of the model it asks.
            queues: Of all models.
            demand: What it asks for.
            now: Seconds.
            ahead_s: How long the device is still at work on what it has.
            lending: For how long queues of which little waits go first.
        """
        if demand.prepared:
            self.end_preparing(queue, demand)
        run_s = self._run_s(queue, demand.whole_cost)
        if 0 < run_s <= SHORT_S:
            self._short_comes(queue, self._runs[queue].predict(demand.whole_cost) or run_s, now)
        seconds = self._drains[queue].measured_s(demand.whole_cost)
        demand.promised = demand.promised or self._promises.keep(demand.token, now)
        queued, limit = sum(each.policy.queued_cost for each in queues), self._max_queued_cost
        if not self._has_room(queue, queues, demand, queued):
            free_s = ahead_s + self._drains[queue].seconds(max(0, queued + demand.cost - limit))
            raise InferenceError(
                "QUEUE_FULL",
                f"{queued} cost units are queued, {queue.policy.queued_cost} of them for {queue.id}; "
                f"{demand.cost} more exceed SIE_MAX_QUEUED_COST={limit}.",
                retry_after_s=self._promises.make(demand.token, now + free_s, seconds, now),
            )
        if demand.deadline is not None and queued:  # where nothing waits it is tried, and what it takes is measured
            self._check_deadline(queue, queues, demand, demand.deadline, now, ahead_s, lending)
        if demand.prepared and seconds:
            self._inflow.record(seconds, demand.who[1], now)

    def is_promised(self, demand: Demand, now: float) -> bool:
        """Whether a request comes back as it was told to, so that room is kept for it."""
        return self._promises.is_due(demand.token, now)

    def begun(self, queue: Queue, batch: Batch, now: float) -> None:
        """Note that a batch begins: a client of short requests that waited long for its turn comes again as likely."""
        self._began_at = now
        if not batch.large and 0 < (batch.predicted_s or 0.0) <= SHORT_S:
            self._short_comes(queue, batch.predicted_s or 0.0, now)

    def _run_s(self, queue: Queue, cost: int) -> float:
        # As one batch, or at the pace of full ones: beside these its overhead counts for nothing, and where all batches
        # are as large as the last ones nothing else tells it from their price.
        alone_s = self._runs[queue].predict(cost)
        return 0.0 if alone_s is None or not cost else min(alone_s, self._drains[queue].seconds(cost))

    def _short_comes(self, queue: Queue, alone_s: float, now: float) -> None:
        one_after_another = self._short_at is not None and now - self._short_at <= SHORT_AGAIN_S
        self._short_s = min(self._short_s, alone_s) if one_after_another else alone_s
        self._short_at = now
        if self.waiting_s(queue) <= SHORT_S:  # where more waits of theirs, they wait for one another
            self._short_to[queue] = now

    def _shorts_come(self, now: float) -> bool:
        return self._short_at is not None and self._is_recent(self._short_at, now)

    def _is_recent(self, at: float, now: float) -> bool:
        # Who came while the last batch ran may wait still, however long that took.
        return now - at <= SHORT_AGAIN_S or at >= self._began_at

    def _check_deadline(
        self,
        queue: Queue,
        queues: Sequence[Queue],
        demand: Demand,
        deadline: float,
        now: float,
        ahead_s: float,
        lending: Lending,
    ) -> None:
        seconds = self._drains[queue].measured_s(demand.whole_cost)
        share, margin = self._inflow.left(seconds, demand.who[1], now), MARGIN
        if demand.promised:  # others were refused to leave room for it, and it is not to be refused twice for a margin
            share, margin = (1 + share) / 2, 1.0
        elif demand.guessed:  # nor is one refused after its preparation as the guess was a little low
            margin = (1 + MARGIN) / 2
        left, expected = deadline - now, self._expected_s(queue, queues, demand, now, ahead_s) / share
        others = 0.0 if demand.promised or expected <= FREE_S else self._promises.due_s(now, deadline)
        first_s = self._first_s(queue, queues, demand, ahead_s, lending)
        if first_s < expected + others:  # also before those who were told to come back
            expected, others = first_s, 0.0
        else:
            waiting_s = self._drains[queue].seconds(queue.policy.queued_cost + demand.whole_cost)
            expected += self._lateness[queue].allowance_s(waiting_s)
        if margin * (expected + others) > left:
            raise InferenceError(
                "QUEUE_FULL",
                f"The answer of {queue.id} would take about {expected + others:.2f} s, as others wait before it, and "
                f"the deadline is in {max(0.0, left):.2f} s.",
                retry_after_s=self._promises.make(demand.token, now + MARGIN * expected - left, seconds / share, now),
            )

    def _has_room(self, queue: Queue, queues: Sequence[Queue], demand: Demand, queued: int) -> bool:
        # An empty queue takes any request. Where others fill the whole, a model and a client still have an equal share:
        # a flood fills it while it is alone and keeps nobody out. At most twice the limit waits, and one large request
        # a model.
        waiting, limit = queue.policy.queued_cost, self._max_queued_cost
        if not waiting or queued + demand.cost <= limit:
            return True
        if waiting + demand.cost <= limit // sum(bool(each.policy.queued_cost) for each in queues):
            return True
        own, clients = queue.policy.claims.cost_of(demand.who), sum(len(each.policy.claims) for each in queues)
        share = limit // (clients + (own is None))
        return queued + demand.cost <= 2 * limit and (own or 0) + demand.cost <= share

    def _first_s(
        self, queue: Queue, queues: Sequence[Queue], demand: Demand, ahead_s: float, lending: Lending
    ) -> float:
        # Until the answer, where it goes before the full batches of others: at their next one where little waits with
        # it, else once it has waited for so long that its part of the time is enough. Infinity where no others wait, or
        # they have the time that it lends.
        own_s = self._run_s(queue, queue.policy.queued_cost + demand.whole_cost)
        others = [each for each in queues if each is not queue and each.policy.queued_units]
        if not others or lending.lender in (None, queue):
            return inf
        weight = demand.who[1]
        begin_s, part = ahead_s + lending.turn_s(weight, own_s), lending.part(weight, own_s)
        if own_s > LITTLE_S:
            begin_s = max(begin_s, own_s / lending.part(weight) + lending.turn_took_s)
        # Others of which no more waits may have their turns before it, and full batches in between.
        before_s = sum(each for each in map(self.waiting_s, others) if each <= max(LITTLE_S, own_s))
        return begin_s + before_s * (1 + 1 / part) + own_s

    def _expected_s(self, queue: Queue, queues: Sequence[Queue], demand: Demand, now: float, ahead_s: float) -> float:
        # When it is through if all were served at once by their weights: those of each weight run all that they have
        # until then, or their share beside it, whichever is less.
        weight, own, others = demand.who[1], 0, []
        for each in queues:
            if not each.policy.queued_units and not self._in_preparation.get(each):
                continue
            mine, before = self._before(each, demand, now, asked=each is queue)
            own += mine
            others += [
                (self._drains[each].measured_s(cost, clients), theirs * clients) for theirs, clients, cost in before
            ]
        alone_s = self._drains[queue].measured_s(own + demand.whole_cost)
        return ahead_s + alone_s + sum(min(all_s, alone_s * share / weight) for all_s, share in others)

    def _before(
        self, queue: Queue, demand: Demand, now: float, *, asked: bool
    ) -> tuple[int, list[tuple[float, int, int]]]:
        # What of its own is before a request in the queue it asks, and by weight how many others are before it in any
        # queue and what they have.
        claims, preparing = queue.policy.claims, self._in_preparation.get(queue)
        found = {weight: [clients, cost] for weight, clients, cost in claims.by_weight()}
        own = (claims.cost_of(demand.who) or 0) if asked else 0
        if own:
            found[demand.who[1]][0] -= 1
            found[demand.who[1]][1] -= own
        if preparing and not (demand.prepared or demand.begun):
            new = set()
            for who, cost in preparing.before(now):
                if asked and who == demand.who:
                    own += cost
                    continue
                theirs = found.setdefault(who[1], [0, 0])
                theirs[1] += cost
                if who not in new and claims.cost_of(who) is None:
                    new.add(who)
                    theirs[0] += 1
        return own, [(weight, clients, cost) for weight, (clients, cost) in found.items()]
