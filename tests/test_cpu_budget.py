"""The CPU budget, read from trees laid out as the kernel lays them out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sie_core.cpu_budget import (
    CpuBudget,
    cgroup_quota,
    compute_threads,
    cpu_budget,
    set_thread_environment,
)

Tree = Callable[..., Path]
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "33 31 0:31 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def write(cgroup: str, mounts: list[str], **files: str) -> Path:
        for path, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": "\n".join(mounts), **files}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text + "\n")
        return tmp_path

    return write


def test_version_2_reads_the_quota_of_its_own_group(tree: Tree) -> None:
    root = tree("0::/app", [V2_MOUNT.format(root="/")], **{"sys/fs/cgroup/app/cpu.max": "150000 100000"})
    assert cgroup_quota(root) == 1.5


def test_the_tightest_group_above_counts(tree: Tree) -> None:
    root = tree(
        "0::/kubepods/pod/container",
        [V2_MOUNT.format(root="/")],
        **{
            "sys/fs/cgroup/kubepods/cpu.max": "1600000 100000",
            "sys/fs/cgroup/kubepods/pod/cpu.max": "300000 100000",
            "sys/fs/cgroup/kubepods/pod/container/cpu.max": "max 100000",
        },
    )
    assert cgroup_quota(root) == 3


def test_max_is_no_limit(tree: Tree) -> None:
    root = tree("0::/", [V2_MOUNT.format(root="/")], **{"sys/fs/cgroup/cpu.max": "max 100000"})
    assert cgroup_quota(root) is None


def test_a_container_in_its_own_namespace_finds_its_quota_at_the_mount(tree: Tree) -> None:
    root = tree("0::/", [V2_MOUNT.format(root="/")], **{"sys/fs/cgroup/cpu.max": "50000 100000"})
    assert cgroup_quota(root) == 0.5


@pytest.mark.parametrize("group", ["/docker/0a1b", "/docker/0a1b/inner"])
def test_a_mount_that_shows_a_part_of_the_hierarchy_is_followed_from_there(tree: Tree, group: str) -> None:
    root = tree(f"0::{group}", [V2_MOUNT.format(root="/docker/0a1b")], **{"sys/fs/cgroup/cpu.max": "200000 100000"})
    assert cgroup_quota(root) == 2


def test_the_hosts_name_of_a_group_that_is_not_mounted_here_does_not_hide_the_quota(tree: Tree) -> None:
    root = tree("0::/../../system.slice/x", [V2_MOUNT.format(root="/")], **{"sys/fs/cgroup/cpu.max": "200000 100000"})
    assert cgroup_quota(root) == 2


def test_version_1_reads_two_files_and_minus_one_is_no_limit(tree: Tree) -> None:
    root = tree(
        "4:memory:/m\n3:cpu,cpuacct:/a/b",
        [V1_MOUNT.format(root="/")],
        **{
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us": "100000",
        },
    )
    assert cgroup_quota(root) == 2.5


def test_in_a_hybrid_tree_the_tighter_hierarchy_counts(tree: Tree) -> None:
    root = tree(
        "1:cpu,cpuacct:/a\n0::/a",
        [V1_MOUNT.format(root="/"), V2_MOUNT.format(root="/").replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ")],
        **{
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "400000",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/unified/a/cpu.max": "100000 100000",
        },
    )
    assert cgroup_quota(root) == 1


def test_the_cpuset_controller_alone_is_no_quota(tree: Tree) -> None:
    mount = "33 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"
    assert cgroup_quota(tree("3:cpuset:/", [mount])) is None


@pytest.mark.parametrize("content", ["", "garbage", "1 2 3", "100000", "-1 100000", "100000 0", "0 100000"])
def test_a_quota_that_makes_no_sense_is_no_limit(tree: Tree, content: str) -> None:
    assert cgroup_quota(tree("0::/", [V2_MOUNT.format(root="/")], **{"sys/fs/cgroup/cpu.max": content})) is None


def test_no_proc_at_all_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) is None


def test_the_budget_is_the_least_of_cpus_affinity_and_quota() -> None:
    assert CpuBudget(online=8, affinity=8).threads == 8
    assert CpuBudget(online=8, affinity=3).threads == 3
    assert CpuBudget(online=8, affinity=8, quota=2.5).threads == 2
    assert CpuBudget(online=8, affinity=8, quota=0.5).threads == 1
    assert CpuBudget(online=8, affinity=3, quota=2.5).cpus == 2.5


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")
def test_affinity_is_that_of_this_process() -> None:
    script = """
import os
from sie_core.cpu_budget import cpu_budget
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(cpu_budget().affinity, cpu_budget().threads)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout.split() == ["1", "1"]


def test_the_real_machine_has_a_budget() -> None:
    budget = cpu_budget()
    assert 1 <= budget.threads <= budget.online
    assert str(budget.threads) in str(budget)


def test_thread_variables_are_set_from_the_budget() -> None:
    environ: dict[str, str] = {}
    decided = set_thread_environment(CpuBudget(online=16, affinity=16, quota=6), environ)
    assert environ == {
        "OMP_NUM_THREADS": "6",
        "MKL_NUM_THREADS": "6",
        "OPENBLAS_NUM_THREADS": "6",
        "RAYON_NUM_THREADS": "4",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_WAIT_POLICY": "PASSIVE",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
    }
    assert (decided.compute, decided.tokenisers) == (6, 4)
    assert decided.set == environ


def test_what_the_operator_set_stays_and_is_obeyed() -> None:
    environ = {"OMP_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true", "MKL_NUM_THREADS": ""}
    decided = set_thread_environment(CpuBudget(online=16, affinity=16), environ)
    assert environ["OMP_NUM_THREADS"] == "3"
    assert environ["TOKENIZERS_PARALLELISM"] == "true"
    assert environ["MKL_NUM_THREADS"] == "16"
    assert decided.compute == 3
    assert decided.kept == {"OMP_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true"}
    assert "OMP_NUM_THREADS=3" in str(decided)


def test_of_omps_list_of_nested_counts_the_outermost_is_taken() -> None:
    assert compute_threads(CpuBudget(online=4, affinity=4), {"OMP_NUM_THREADS": "3,2"}) == 3


@pytest.mark.parametrize("value", ["", "many", "0", "-1", ",2"])
def test_a_thread_count_that_is_no_number_leaves_the_budget(value: str) -> None:
    assert compute_threads(CpuBudget(online=4, affinity=4), {"OMP_NUM_THREADS": value}) == 4
