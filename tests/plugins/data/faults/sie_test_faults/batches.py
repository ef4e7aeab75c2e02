"""A batch policy that takes everything and gives what is no batch."""

from sie_core.batching import BatchFormer
from sie_core.hookspecs import hookimpl


class Odd(BatchFormer):
    def take(self, now, device_busy, most_s=None):
        return "a batch"


class Junk:
    CONTRACT_VERSION = 1

    @staticmethod
    @hookimpl
    def sie_batch_policies():
        return {"policy-of-junk": Odd}
