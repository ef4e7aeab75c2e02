"""The kit finds planted faults, each by the check that is for it, and passes the parts that they are made of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sie_fake.adapter import FakeAdapter

from sie_core.batching import FairScheduler
from sie_core.memory import LeastRecentlyUsed
from tests.kit.faults import adapters, conversions, families, places, queues, schedulers
from tests.kit.faults.seeding import FAULTS, Fault
from tests.kit.planted import outcome, runs

FOUND = [fault for fault in FAULTS if fault.check is not None]
QUICK = [fault for fault in FOUND if not fault.given.get("slow")]
"""The others wait for what never comes: `python -m tests.kit` has them too."""
SOUND = [
    *(Fault("adapter", FakeAdapter, None, {"tasks": tasks}) for tasks in (adapters.READS, adapters.SPARSE)),
    Fault("scheduler", FairScheduler, None),
    Fault("scheduler", schedulers.Queue, None),
    Fault("memory manager", LeastRecentlyUsed, None),
    Fault("postprocessor", conversions.Doubled, None),
    Fault("postprocessor", conversions.Mean, None),
    Fault("weight tier", places.Shelf, None),
    Fault("object store", places.Store, None),
    Fault("device probe", families.Probe(), None),
    Fault("runner", families.spec(), None),
    Fault("reference", families.reference(), None),
]


def test_there_are_many_faults_of_every_kind_and_the_kit_finds_nine_of_ten() -> None:
    kinds, found = (Counter(fault.kind for fault in faults) for faults in (FAULTS, FOUND))
    assert sum(kinds.values()) >= 200
    assert all(found[kind] >= 2 / 3 * count for kind, count in kinds.items())
    assert sum(found.values()) >= 0.9 * sum(kinds.values())


@pytest.mark.parametrize("fault", QUICK, ids=str)
def test_a_fault_fails_the_check_that_is_for_it(fault: Fault) -> None:
    (check,) = [run for name, run in runs(fault) if name == fault.check]
    assert outcome(check, hangs=fault.given.get("hangs", False)), f"{fault.check} passes"


@pytest.mark.parametrize("part", SOUND, ids=str)
def test_a_sound_part_passes_every_check(part: Any) -> None:
    failing = {name: told for name, run in runs(part) if (told := outcome(run))}
    assert not failing


def test_a_sound_transport_passes_what_faults_fail() -> None:
    wanted = {fault.check for fault in FAULTS if fault.kind == "queue transport"}
    part = Fault("queue transport", queues.Transport, None)
    assert not {name: told for name, run in runs(part) if name in wanted and (told := outcome(run))}
