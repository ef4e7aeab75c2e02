"""A reference by a name that was free then."""

from sie_core.contracts import Reference, ReferenceModel
from sie_core.hookspecs import hookimpl

CONTRACT_VERSION = 1


class Counts(ReferenceModel):
    gives = frozenset({"dense"})

    @classmethod
    def load(cls, context, served):
        return cls()

    def answer(self, items, task):
        raise NotImplementedError


@hookimpl
def sie_references():
    target, dense = "sie_old_table.reference:Counts", frozenset({"dense"})
    return [Reference("model2vec", frozenset({"old-table"}), target, gives=dense)]
