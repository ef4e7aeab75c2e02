"""A memory manager outside the tree: one model at a time, whatever memory there is."""

from sie_core.contracts import Room
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.memory/1",)


class OneAtATime:
    def __init__(self, limits):
        self._idle_s = limits.idle_s

    def make_room(self, wanted, memory, models, now):
        return Room(evict=self.out_of_memory(memory, models, now))

    def relieve(self, memory, models, now):
        unused = [each for each in models if self._idle_s is not None and now - each.last_used > self._idle_s]
        return [each.id for each in unused if not each.pinned]

    def out_of_memory(self, memory, models, now):
        return next((each.id for each in models if not each.pinned), None)


@hookimpl
def sie_memory_managers():
    return {"one-at-a-time": OneAtATime}
