"""A batch policy, as the interface was before release 1.0: first in, first out."""

from sie_core.contracts import Batch
from sie_core.hookspecs import hookimpl

CONTRACT_VERSION = 1


class OneByOne:
    def __init__(self, limits):
        self._queue = []

    def add(self, units):
        self._queue += units

    def cancel(self, request):
        return self._drop({request})

    def expire(self, now):
        late = {unit.request for unit in self._queue if unit.deadline is not None and unit.deadline < now}
        self._drop(late)
        return late

    def _drop(self, requests):
        before = len(self._queue)
        self._queue = [unit for unit in self._queue if unit.request not in requests]
        return before - len(self._queue)

    def take(self, now, device_busy):
        if not self._queue:
            return None
        unit = self._queue.pop(0)
        return Batch((unit,), unit.unit.key, unit.unit.cost, predicted_s=None)

    def ready_at(self, now):
        return now if self._queue else None

    def oldest(self):
        return self._queue[0].enqueued_at if self._queue else None

    def record(self, batch, seconds):
        pass

    @property
    def queued_cost(self):
        return sum(unit.unit.cost for unit in self._queue)

    @property
    def queued_units(self):
        return len(self._queue)


@hookimpl
def sie_batch_policies():
    return {"old-fifo": OneByOne}
