"""A scheduler outside the tree: first in, first out over everything, whoever asks and whatever for."""

from sie_core.contracts import Batch, InferenceError
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.scheduler/1",)


class FirstInFirstOut:
    def __init__(self, limits):
        self._queue = []
        self._limits = {}
        self._most = limits.max_cost

    def add_model(self, model, limits):
        self._limits[model] = limits

    def remove_model(self, model):
        del self._limits[model]

    def add(self, request, units, now):
        if not request.admitted and sum(each.unit.cost for each in (*self._queue, *units)) > self._most:
            raise InferenceError("QUEUE_FULL", "The queue is full; try again later.")
        self._queue += units

    def next(self, now, *, ahead=False, within=None):
        if not self._queue or within is not None:
            return None
        model, key = self._queue[0].request.model, self._queue[0].unit.key
        limits, taken, cost = self._limits[model], [], 0
        for queued in self._queue:
            cost += queued.unit.cost
            requests = {each.request for each in (*taken, queued)}
            alike = queued.request.model is model and queued.unit.key == key
            if taken and (not alike or cost > limits.max_cost or len(requests) > limits.max_requests):
                break
            taken.append(queued)
        del self._queue[: len(taken)]
        taken.sort(key=lambda queued: queued.unit.cost)
        return Batch(model, tuple(taken), sum(queued.unit.cost for queued in taken))

    def late(self, now):
        requests = {each.request for each in self._queue if each.request.deadline is not None}
        return [each for each in requests if each.deadline < now and self.cancel(each)]

    def ran(self, batch, seconds, now):
        pass

    def cancel(self, request):
        before = len(self._queue)
        self._queue = [queued for queued in self._queue if queued.request is not request]
        return before - len(self._queue)

    def waiting(self, model):
        costs = [queued.unit.cost for queued in self._queue if queued.request.model is model]
        return len(costs), sum(costs)


@hookimpl
def sie_schedulers():
    return {"fifo": FirstInFirstOut}
