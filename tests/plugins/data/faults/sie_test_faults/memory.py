"""A memory manager that cannot decide."""

from sie_core.hookspecs import hookimpl


class Undecided:
    def __init__(self, limits):
        pass

    def make_room(self, wanted, memory, models, now):
        raise ZeroDivisionError("memory divided by models")

    def relieve(self, memory, models, now):
        raise ZeroDivisionError("memory divided by models")

    def out_of_memory(self, memory, models, now):
        return 3


class Raises:
    INTERFACES = ("sie.memory/1",)

    @staticmethod
    @hookimpl
    def sie_memory_managers():
        return {"manager-that-raises": Undecided}
