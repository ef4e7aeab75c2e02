"""The memory of a real GPU: the driver and CUDA tell the same."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from sie_pytorch.devices.nvml import DriverMemory
from sie_pytorch.devices.probes import CudaProbe

from sie_core.contracts import Device
from tests.gpu.device import NEEDS_GPU

pytestmark = NEEDS_GPU

LEFT_OUT = 0.1
"""The share of a device that CUDA leaves out, and other processes may take between two looks."""


def test_the_driver_finds_the_device_and_tells_what_cuda_tells() -> None:
    block = torch.ones(2**28, device="cuda")
    properties = torch.cuda.get_device_properties(0)
    told = DriverMemory().free_and_total(0, properties)
    assert told is not None
    free, total = torch.cuda.mem_get_info(0)
    assert abs(told[0] - free) <= LEFT_OUT * total
    assert abs(told[1] - total) <= LEFT_OUT * total
    measured = CudaProbe().memory(Device("cuda", 0))
    assert measured.used >= block.nbytes
    assert measured.own is not None
    assert measured.own >= block.nbytes


def test_it_is_found_by_its_place_on_the_bus_too() -> None:
    properties = torch.cuda.get_device_properties(0)
    fields = ("total_memory", "pci_domain_id", "pci_bus_id", "pci_device_id")
    place = SimpleNamespace(**{name: getattr(properties, name) for name in fields})
    assert DriverMemory().free_and_total(0, place) is not None
