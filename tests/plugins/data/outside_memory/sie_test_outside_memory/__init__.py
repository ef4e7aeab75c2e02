"""A memory manager outside the tree: one model at a time, whatever memory there is."""

from sie_core.contracts import Room
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.memory/1",)


class OneAtATime:
    def __init__(self, limits):
        pass

    def make_room(self, wanted, memory, models, now):
        loose = [model.id for model in models if not model.pinned]
        return Room(evict=loose[0]) if loose else Room()

    def relieve(self, memory, models, now):
        return ()

    def out_of_memory(self, memory, models, now):
        return None


@hookimpl
def sie_memory_managers():
    return {"one-at-a-time": OneAtATime}
