"""The CPUs that this process may use, and the thread counts that follow; needed before a numeric library starts its
threads.

Tokenisers and forward passes share this one budget. It reads the kernel's files and the thread variables of the numeric
libraries, which are no settings of SIE.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

COMPUTE_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables of the forward pass, read by its libraries at import."""
MOST_TOKENISERS = 4
"""Threads that tokenise at most, whatever the CPU quota."""
KERNELS_KEPT = 256
"""Kernels oneDNN keeps; a layer of a text encoder needs four or five for each number of rows it meets."""


@dataclass(frozen=True, slots=True)
class CpuBudget:
    """The CPUs of the machine, those this process may run on, and the quota of its container; the least counts."""

    online: int
    affinity: int
    quota: float | None = None
    """CPUs' worth of time a second, as the tightest cgroup above the process grants; None for no limit."""

    @property
    def cpus(self) -> float:
        """CPU time a second that the process may use, in CPUs."""
        return min(self.online, self.affinity, self.quota or math.inf)

    @property
    def threads(self) -> int:
        """Threads that may compute at once: whole CPUs, so that the quota never throttles one; at least 1."""
        return max(1, math.floor(self.cpus))

    def __str__(self) -> str:
        quota = "none" if self.quota is None else f"{self.quota:g}"
        return f"{self.threads} threads (CPUs {self.online}, affinity {self.affinity}, cgroup quota {quota})"


@dataclass(frozen=True, slots=True)
class ThreadEnvironment:
    """The decisions on threads, for the log and for whoever starts them."""

    compute: int
    """Threads of a forward pass."""
    tokenisers: int
    """Threads that tokenise."""
    set: Mapping[str, str] = field(default_factory=dict)
    """Variables set here."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Variables the operator had set, which stay."""

    def __str__(self) -> str:
        kept = f", kept from the environment: {_pairs(self.kept)}" if self.kept else ""
        return f"compute {self.compute}, tokenisation {self.tokenisers}; set: {_pairs(self.set) or 'nothing'}{kept}"


def cpu_budget(root: Path = Path("/")) -> CpuBudget:
    """Measure the budget of this process. `root` is the parent of `/proc` and `/sys`."""
    online = os.cpu_count() or 1
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else online
    return CpuBudget(online=online, affinity=affinity, quota=cgroup_quota(root))


def set_thread_environment(budget: CpuBudget, environ: MutableMapping[str, str] | None = None) -> ThreadEnvironment:
    """Set the variables that bound the threads and memory of numeric libraries, unless the operator did.

    Call it before torch, NumPy's BLAS or tokenizers are imported: they read the variables once. Tokenisation runs on
    the engine's own threads, so `tokenizers` must not start a second pool under each of them.

    OpenMP's threads wait asleep (passive). By default they spin. On a CPU that anything else uses (this process's own
    event loop, a neighbour, a container's quota), a spinning thread keeps the thread it waits for from running: on two
    busy cores a forward pass of MiniLM over 52 tokens then takes 260 ms instead of 18. oneDNN's cache of kernels is
    bounded too: each takes about 700 kB, and its own limit of 1024 lets them outgrow the weights of a small model many
    times over.
    """
    environ = os.environ if environ is None else environ
    threads = str(budget.threads)
    wanted = {
        **dict.fromkeys(COMPUTE_VARIABLES, threads),
        "RAYON_NUM_THREADS": str(min(MOST_TOKENISERS, budget.threads)),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_WAIT_POLICY": "PASSIVE",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(KERNELS_KEPT),
    }
    kept = {name: environ[name] for name in wanted if environ.get(name)}
    added = {name: value for name, value in wanted.items() if name not in kept}
    environ.update(added)
    return ThreadEnvironment(
        compute=compute_threads(budget, environ), tokenisers=min(MOST_TOKENISERS, budget.threads), set=added, kept=kept
    )


def compute_threads(budget: CpuBudget, environ: Mapping[str, str] | None = None) -> int:
    """Return how many threads a forward pass may use: the operator's `OMP_NUM_THREADS`, else the budget."""
    environ = os.environ if environ is None else environ
    outermost, _, _ = environ.get("OMP_NUM_THREADS", "").partition(",")
    return int(outermost) if outermost.isascii() and outermost.isdigit() and int(outermost) > 0 else budget.threads


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """Return the tightest CPU quota of the cgroups above this process, v1 and v2, in CPUs; None for no limit."""
    quotas = [quota for folder in _cgroup_folders(root) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _quota_of(folder: Path) -> float | None:
    """Read the quota of one group: v2 has "quota period" in `cpu.max`, v1 two files; "max" and -1 mean no limit."""
    words = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _cgroup_folders(root: Path) -> Iterator[Path]:
    """List the folder of each group above this process, in every hierarchy that may limit the CPU."""
    groups = dict(_groups(root))
    for hierarchy, mounted, mount in _mounts(root):
        folder = mount
        yield folder
        for part in _below(groups.get(hierarchy, "/"), mounted):
            folder = folder / part
            if not folder.is_dir():
                break
            yield folder


def _below(group: str, mounted: str) -> tuple[str, ...]:
    """Name the folders from a mount down to the process's group.

    A container's mount shows the hierarchy from some group on. If the process's own path does not start with that
    group, the path is the host's name for it, and the mount itself is the container's group.
    """
    try:
        parts = Path(group).relative_to(mounted).parts
    except ValueError:
        return ()
    return () if ".." in parts else parts


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """Read the process's group in the hierarchies `v1` (of the CPU controller) and `v2`."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "cpu" in controllers.split(","):
            yield "v1", path
        elif number == "0" and not controllers:
            yield "v2", path


def _mounts(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Read the mounts of the cgroup hierarchies: (hierarchy, group at the top of the mount, mount point)."""
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, source = line.partition(" - ")
        fields, kind = mount.split(), source.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        place = root / fields[4].lstrip("/")
        if kind[0] == "cgroup2":
            yield "v2", fields[3], place
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            yield "v1", fields[3], place


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _words(file: Path) -> list[str]:
    lines = _lines(file)
    return lines[0].split() if lines else []


def _pairs(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
