"""The CPU's memory is what the container may use, whatever the cgroup version."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sie_core.contracts import Device, DeviceMemory, HeldModel, MemoryLimits, Room
from sie_core.defaults.cpu_device import CpuProbe
from sie_core.memory import LeastRecentlyUsed
from tests.soak.many.serving import memory_group

GIB = 2**30
CPU = Device("cpu")


def measured(probe: CpuProbe) -> tuple[int, int]:
    memory = probe.memory(CPU)
    assert memory.own
    return memory.used, memory.total


def write(root: Path, files: dict[str, object]) -> CpuProbe:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return CpuProbe(root)


def test_without_a_limit_it_is_the_machine(tmp_path):
    memory = CpuProbe(tmp_path).memory(CPU)

    assert memory.total == psutil.virtual_memory().total
    assert 0 < memory.used < memory.total


def test_a_limit_of_cgroup_2_counts_and_page_cache_that_nobody_maps_does_not(tmp_path):
    group = "sys/fs/cgroup/kubepods/pod1"
    probe = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod1",
            f"{group}/memory.max": GIB // 4,
            f"{group}/memory.current": 100_000_000,
            f"{group}/memory.stat": "anon 1\ninactive_file 30000000\nactive_file 20000000\nfile_mapped 15000000",
        },
    )

    assert measured(probe) == (65_000_000, GIB // 4)


def test_the_limit_from_which_the_kernel_throttles_counts_where_it_is_the_tighter(tmp_path):
    group = "sys/fs/cgroup/app"
    files = {"proc/self/cgroup": "0::/app", f"{group}/memory.max": GIB // 4, f"{group}/memory.current": 7}

    assert measured(write(tmp_path, {**files, f"{group}/memory.high": "max"})) == (7, GIB // 4)
    assert measured(write(tmp_path, {**files, f"{group}/memory.high": GIB // 8})) == (7, GIB // 8)
    assert measured(write(tmp_path, {**files, f"{group}/memory.max": "max"})) == (7, GIB // 8)


READER = """
import mmap, sys
from sie_core.contracts import Device
from sie_core.defaults.cpu_device import CpuProbe

def show():
    memory = CpuProbe().memory(Device("cpu"))
    print(memory.used, memory.total)

show()
with open(sys.argv[1], "rb") as file:
    while file.read(1 << 20):
        pass
    show()
    file.seek(0)
    with mmap.mmap(file.fileno(), 100_000_000, prot=mmap.PROT_READ) as mapped:
        sum(mapped[::4096])
        show()
    show()
"""


def test_page_cache_that_fills_a_real_cgroup_is_no_pressure_and_weights_count_while_they_are_mapped(tmp_path):
    limit = 200_000_000 // 4096 * 4096
    weights = tmp_path / "weights"
    with weights.open("wb") as file:
        file.truncate(2 * limit)
    with memory_group(limit) as group:
        if group is None:
            pytest.skip("this machine lets the tests make no memory cgroup")
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        done = subprocess.run(
            [*enter, sys.executable, "-c", READER, str(weights)],
            capture_output=True,
            text=True,
            timeout=250,
            check=True,
        )
    start, read, mapped, unmapped = [DeviceMemory(*map(int, line.split())) for line in done.stdout.splitlines()]
    assert {memory.total for memory in (start, read, mapped, unmapped)} == {limit}
    assert read.used < start.used + 20_000_000
    assert mapped.used > start.used + 80_000_000
    assert unmapped.used < start.used + 20_000_000
    model = HeldModel("m", 1000, 0.0, load_s=1.0, last_used=0.0, uses=0, served=True, pinned=False)
    manager = LeastRecentlyUsed(MemoryLimits(pressure=0.85, idle_s=None))
    used_later = dataclasses.replace(model, id="later", last_used=1.0)
    assert not manager.relieve(read, [model, used_later], 1000.0)
    assert manager.make_room(50_000_000, read, [model, used_later], 1000.0) == Room()


def test_the_tightest_limit_above_the_process_counts(tmp_path):
    probe = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/service",
            "sys/fs/cgroup/slice/service/memory.max": "max",
            "sys/fs/cgroup/slice/service/memory.current": 5,
            "sys/fs/cgroup/slice/memory.max": GIB // 8,
            "sys/fs/cgroup/slice/memory.current": 9,
        },
    )

    assert measured(probe) == (9, GIB // 8)


@pytest.mark.parametrize("path", ["/", "/docker/0123abcd", "/../.."])
def test_a_limit_of_cgroup_1_is_found_inside_a_container(tmp_path, path):
    probe = write(
        tmp_path,
        {
            "proc/self/cgroup": f"9:cpu,cpuacct:{path}\n4:memory:{path}\n1:name=systemd:{path}",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": GIB // 2,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 1000,
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 400\ntotal_active_file 100\ntotal_mapped_file 50",
        },
    )

    assert measured(probe) == (550, GIB // 2)


def test_the_no_limit_of_cgroup_1_is_no_limit(tmp_path):
    probe = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 1000,
        },
    )

    assert probe.memory(CPU).total == psutil.virtual_memory().total


def test_the_cpu_has_its_models_name(tmp_path):
    probe = write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Acme 9000 @ 3 GHz\nflags\t: a b"})

    assert probe.devices() == [Device("cpu", name="Acme 9000 @ 3 GHz")]
