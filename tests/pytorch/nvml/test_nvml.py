"""The memory of CUDA devices as the driver tells it: pynvml itself over a stand-in for the driver's library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")
GIB = 2**30
A, B = "11111111-aaaa-0000-0000-000000000000", "22222222-bbbb-0000-0000-000000000000"
SCRIPT = """
import json, logging, os, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
from sie_core.contracts import Device
from sie_pytorch.devices.probes import CudaProbe
probe, drivers = CudaProbe(), json.loads(os.environ["TEST_DRIVERS"])
for driver in drivers:
    open(os.environ["TEST_NVML"], "w").write(driver)
    for index in range(len(json.loads(os.environ["TEST_TORCH"]))):
        memory = probe.memory(Device("cuda", index))
        print(memory.used, memory.total, memory.own)
"""


def device(uuid: str | None, **fields: object) -> dict[str, object]:
    """A GPU of 8 GiB, as PyTorch sees it: 3 GiB are in use, 1 GiB by tensors, 1 GiB is kept for later."""
    address = {"pci_domain_id": 0, "pci_bus_id": 0x3B, "pci_device_id": 0}
    which = address if uuid is None else {"uuid": uuid}
    told = {"allocated": GIB, "reserved": 2 * GIB, "info": [5 * GIB, 8 * GIB], **fields}
    return {"properties": {"total_memory": 8 * GIB, **which}, **told}


@dataclass
class Machine:
    """A process of its own, in which `torch` and the driver's library are the stand-ins."""

    folder: Path
    log: str = ""

    def measure(self, devices: list[dict[str, object]], *drivers: str) -> list[tuple[int, ...]]:
        """Measure every device once for each state of the driver; return what is used, there and own."""
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(self.folder), *filter(None, sys.path)]),
            "TEST_NVML": str(self.folder / "driver"),
            "TEST_TORCH": json.dumps(devices),
            "TEST_DRIVERS": json.dumps(drivers),
        }
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        self.log = done.stderr
        return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    built = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-w", "-shared", "-fPIC", "-o", built, HERE / "driver.c"], check=True, timeout=250)
    return built


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Without the driver's library."""
    shutil.copy(HERE / "torch_stand_in.py", tmp_path / "torch.py")
    return Machine(tmp_path)


@pytest.fixture
def driven(machine: Machine, library: Path) -> Machine:
    """With it."""
    shutil.copy(library, machine.folder)
    return machine


def test_a_device_is_found_by_its_uuid_whatever_its_number_and_the_use_of_others_counts(driven):
    driver = f"init 0\nGPU-{A} {8 * GIB} {1 * GIB} 0\nGPU-{B} {8 * GIB} {6 * GIB} 0\n"
    measured = driven.measure([device(B), device(A)], driver)
    assert measured == [(1 * GIB, 8 * GIB, GIB), (6 * GIB, 8 * GIB, GIB)]
    assert "NVML" not in driven.log


def test_a_device_without_a_uuid_is_found_by_its_place_on_the_bus(driven):
    driver = f"init 0\nGPU-{A} {8 * GIB} {1 * GIB} 0\n00000000:3B:00.0 {8 * GIB} {4 * GIB} 0\n"
    assert driven.measure([device(None)], driver) == [(3 * GIB, 8 * GIB, GIB)]


def test_a_slice_of_a_gpu_is_measured_and_never_the_gpu_it_is_of(driven):
    whole = f"init 0\nGPU-{A} {80 * GIB} {70 * GIB} 0\n"
    measured = driven.measure([device(A)], f"{whole}MIG-{A} {8 * GIB} {2 * GIB} 0\n")
    assert measured == [(5 * GIB, 8 * GIB, GIB)]
    assert driven.measure([device(A)], whole) == [(2 * GIB, 8 * GIB, GIB)]
    assert "NVML does not tell" in driven.log


def test_an_error_midway_falls_back_to_pytorch_s_numbers_and_the_next_answer_counts_again(driven):
    sound = f"init 0\nGPU-{A} {8 * GIB} {1 * GIB} 0\n"
    lost = f"init 0\nGPU-{A} {8 * GIB} {1 * GIB} 15\n"  # NVML_ERROR_GPU_IS_LOST
    measured = driven.measure([device(A)], sound, lost, lost, sound)
    assert [used for used, _, _ in measured] == [6 * GIB, 2 * GIB, 2 * GIB, 6 * GIB]
    assert driven.log.count("NVML does not tell") == 1


@pytest.mark.parametrize("code", [9, 18])  # the driver is not loaded; the library is another version than it
def test_a_driver_that_does_not_start_is_asked_no_more(driven, code):
    sound = f"init 0\nGPU-{A} {8 * GIB} {1 * GIB} 0\n"
    measured = driven.measure([device(A)], f"init {code}\n", sound)
    assert [used for used, _, _ in measured] == [2 * GIB, 2 * GIB]
    assert driven.log.count("NVML does not tell") == 1


def test_without_the_driver_s_library_pytorch_s_numbers_count_and_it_is_said_once(machine):
    measured = machine.measure([device(A), device(B)], "", "")
    assert measured == [(2 * GIB, 8 * GIB, GIB)] * 4
    assert machine.log.count("NVML does not tell") == 1


def test_blocks_that_pytorch_keeps_never_make_the_use_negative(driven):
    driver = f"init 0\nGPU-{A} {8 * GIB} {8 * GIB} 0\n"
    assert driven.measure([device(A)], driver) == [(0, 8 * GIB, GIB)]
