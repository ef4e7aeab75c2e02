"""`SIE_DEVICE` among what the probes find."""

import threading

import pytest

from sie_core.contracts import Device, DeviceMemory, PluginError
from sie_core.memory.meter import UNKNOWN, DeviceMemoryMeter
from sie_core.plugins.selection import choose_device


class Probe:
    def __init__(self, kind, priority, count):
        self.kind, self.priority, self.count = kind, priority, count

    def devices(self):
        if self.count < 0:
            raise RuntimeError("the driver is broken")
        return [Device(self.kind, index, name=f"{self.kind} number {index}") for index in range(self.count)]

    def memory(self, device):
        return DeviceMemory(0, 1)


def untold(kind, problem, error):
    """Take what a probe did wrong, where a test does not look at it."""


CPU, CUDA, NO_CUDA, BROKEN = Probe("cpu", 0, 1), Probe("cuda", 100, 2), Probe("cuda", 100, 0), Probe("mps", 50, -1)


@pytest.mark.parametrize(
    ("wanted", "probes", "chosen"),
    [
        ("auto", [CPU, CUDA], "cuda:0"),
        ("auto", [CPU, NO_CUDA], "cpu"),
        ("auto", [CPU, BROKEN], "cpu"),
        ("cpu", [CPU, CUDA], "cpu"),
        ("cuda", [CPU, CUDA], "cuda:0"),
        ("cuda:1", [CPU, CUDA], "cuda:1"),
    ],
)
def test_the_device_is_chosen_by_name_or_by_priority(wanted, probes, chosen):
    assert str(choose_device(wanted, probes, untold)) == chosen


@pytest.mark.parametrize(
    ("wanted", "probes", "found"),
    [
        ("cuda:7", [CPU, CUDA], "cuda:0 (cuda number 0), cuda:1 (cuda number 1)"),
        ("cuda", [CPU, NO_CUDA], "cpu (cpu number 0)"),
        ("tpu", [CPU], "cpu (cpu number 0)"),
        ("auto", [], "none"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(wanted, probes, found):
    with pytest.raises(PluginError) as caught:
        choose_device(wanted, probes, untold)
    assert f"SIE_DEVICE={wanted}" in str(caught.value)
    assert f"Found: {found}." in str(caught.value)


@pytest.mark.parametrize("found", [None, 3, ["cuda:0"], [Device("odd"), None]])
def test_a_probe_that_finds_junk_is_passed_over_and_told(found):
    class Odd(Probe):
        def devices(self):
            return found

    told = []
    chosen = choose_device("auto", [CPU, Odd("odd", 900, 1)], lambda kind, problem, error: told.append(kind + problem))
    assert str(chosen) == "cpu"
    assert told == ["oddfailed and is passed over (TypeError)"]


@pytest.mark.parametrize("memory", [None, 3, DeviceMemory(-1, 5), DeviceMemory(1, float("nan")), DeviceMemory("1", 2)])
def test_a_probe_that_measures_junk_unloads_nothing_and_is_told(memory):
    class Odd(Probe):
        def memory(self, device):
            return memory

        def free_caches(self, device):
            raise KeyError("caches")

    told = []
    gauge = DeviceMemoryMeter(Device("odd"), [Odd("odd", 0, 1)], 10, lambda kind, problem, error: told.append(problem))
    assert gauge.measure() == UNKNOWN
    gauge.free_caches()
    assert told[0].startswith("cannot measure memory")
    assert told[1] == "cannot free its caches (KeyError)"


def test_a_probe_that_hangs_is_passed_over_and_the_others_are_asked(monkeypatch):
    monkeypatch.setattr("sie_core.plugins.selection.PROBE_LIMIT_S", 1.0)  # the other probe has to answer within it
    may, told = threading.Event(), []

    class Hangs(Probe):
        def devices(self):
            assert may.wait(60)
            return []

    try:
        chosen = choose_device("auto", [CPU, Hangs("slow", 900, 1)], lambda *report: told.append(report[:2]))
    finally:
        may.set()

    assert str(chosen) == "cpu"
    assert told == [("slow", "did not come back within 1 s from `devices` and is passed over")]
