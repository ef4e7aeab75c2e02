"""The payloads of a gateway and of a sidecar fit the memory of their container."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sie_cluster.gateway.flights import arriving, dispatcher
from sie_cluster.gateway.run import BODIES_PART
from sie_cluster.programs.memory import GATEWAY_BYTES, SIDECAR_BYTES, gateway_bytes, sidecar_bytes, with_memory
from sie_cluster.settings import ClusterSettings
from sie_cluster.sidecar import slices

from sie_core.contracts import Device, DeviceMemory
from sie_core.plugins import PluginSet


class Container:
    """A probe of the CPU in a container with so many bytes."""

    kind, priority = "cpu", 0

    def __init__(self, total: int) -> None:
        self.total = total

    def devices(self) -> list[Device]:
        return [Device("cpu")]

    def memory(self, device: Device) -> DeviceMemory:
        return DeviceMemory(0, self.total)

    def free_caches(self, device: Device) -> None:
        pass


@pytest.mark.parametrize(("total", "gateway", "sidecar"), [
    (512 << 20, 256 << 20, 256 << 20), (64 << 30, GATEWAY_BYTES, SIDECAR_BYTES),
])  # fmt: skip
def test_payloads_take_half_of_a_container_and_no_more_than_the_most(total: int, gateway: int, sidecar: int) -> None:
    settings = with_memory(ClusterSettings(), replace(PluginSet(), device_probes=(Container(total),)))
    assert (gateway_bytes(settings), sidecar_bytes(settings)) == (gateway, sidecar)


def test_what_is_set_counts_and_without_a_probe_the_most_does() -> None:
    settings = with_memory(ClusterSettings(gateway_memory_bytes="300MiB"), PluginSet())
    assert (gateway_bytes(settings), sidecar_bytes(settings)) == (300 << 20, SIDECAR_BYTES)


def test_the_parts_are_no_more_than_the_whole() -> None:
    assert BODIES_PART + dispatcher.OFFERED_PART + arriving.FETCHED_PART + arriving.RESULTS_PART == 1
    assert slices.OFFERED_PART + slices.FETCHED_PART <= 1
