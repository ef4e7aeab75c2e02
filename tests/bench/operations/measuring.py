"""The sides' turns: SIE, the library at its own batch size, the library at its best one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sie_core.cpu_budget import CpuBudget, set_thread_environment
from tests.bench.operations.answers import deviation, read
from tests.bench.operations.talking import Child, speaking
from tests.bench.operations.workload import OPERATIONS, Load, Operation, make_load
from tests.bench.processes.environments import GLINER, SCRATCH

LEAST = 32
"""Units of a pass of a smoke run, where a whole one has more."""
FEWEST = 8
"""Units of a pass of tiny models."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    threads: int
    repeats: int
    quick: bool = False
    """Few units, and the library at its own batch size alone."""
    tiny: bool = False
    """Tiny models: a test of the bench, not of speed."""

    def count(self, operation: Operation) -> int:
        if self.tiny:
            return FEWEST
        return min(LEAST, operation.count) if self.quick else operation.count

    def sizes(self, operation: Operation) -> list[int]:
        """Give the library's batch sizes, its own first; none beyond the units there are."""
        others = () if self.quick else operation.sizes
        return [operation.default_size, *(size for size in others if size <= self.count(operation))]


def measure(plan: Plan, models: Path = SCRATCH / "models") -> dict[str, Any]:
    """Measure every operation: units a second of each side, and how far the answers are apart."""
    # Tiny random models score alike what half precision then orders anew.
    variables = {"SIE_DEFAULT_COMPUTE_PRECISION": "float32"} if plan.tiny else {}
    set_thread_environment(CpuBudget(plan.threads, plan.threads), variables)  # as `sie serve` sets them
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        ours = stack.enter_context(speaking("operations.ours", plan.threads, variables))
        libraries = {}
        folders: dict[str, str] = {}
        for python in dict.fromkeys(map(_python, OPERATIONS.values())):
            child = stack.enter_context(speaking("operations.theirs", plan.threads, python=python))
            names = [name for name, operation in OPERATIONS.items() if _python(operation) == python]
            folders |= child.ask(write=str(models), names=names, tiny=plan.tiny)
            libraries |= dict.fromkeys(names, child)
        ours.ask(folders=folders)
        return {
            name: Sides(plan, ours, libraries[name], scratch).measure(operation, folders[name])
            for name, operation in OPERATIONS.items()
        }


def _python(operation: Operation) -> Path:
    """Give the Python that has an operation's library; gliner's environment is built."""
    if operation.library != "gliner":
        return Path(sys.executable)
    GLINER.build()
    return GLINER.program("python")


@dataclass(frozen=True, slots=True)
class Sides:
    """Both children, and what they are to do."""

    plan: Plan
    ours: Child
    theirs: Child
    scratch: Path

    def measure(self, operation: Operation, folder: str) -> dict[str, Any]:
        """Load the operation on both sides, warm up, choose a batch size, take turns, compare."""
        load = make_load(operation, self.plan.count(operation))
        self.ours.tell(load=operation.name)
        self.theirs.tell(load=operation.asked, folder=folder, threads=self.plan.threads)
        runner = self.ours.hear()
        self.theirs.hear()
        sizes = self._chosen(operation, load)
        found: dict[str, Any] = {
            **{name: getattr(operation, name) for name in ("unit", "model", "library", "default_size", "wanted")},
            **runner, "count": len(load.texts), "sizes_tried": self.plan.sizes(operation), "ours": [],
            "theirs": {str(size): [] for size in sizes},
        }  # fmt: skip
        self._ours(operation, load.first(max(LEAST, len(load.texts) // 2)))
        files = [self.scratch / f"{operation.name.replace(' ', '-')}-{side}.npz" for side in ("ours", "theirs")]
        for _ in range(self.plan.repeats):
            found["ours"].append(len(load.texts) / self._ours(operation, load, files[0]))
            for size in sizes:
                found["theirs"][str(size)].append(len(load.texts) / self._theirs(load, size, files[1]))
        far = deviation(*map(read, files))
        return {**found, "deviation": asdict(far), "wrong": far.is_wrong(found["precision"])}

    def _chosen(self, operation: Operation, load: Load) -> list[int]:
        """Try the library's batch sizes, which also warms it up; return its own and the fastest."""
        half = load.first(max(LEAST, len(load.texts) // 2))
        sizes = self.plan.sizes(operation)
        self._theirs(load.first(LEAST), sizes[0])
        if len(sizes) == 1:
            return sizes
        taken = {size: self._theirs(half, size) for size in sizes}
        return list(dict.fromkeys([operation.default_size, min(sizes, key=lambda size: taken[size])]))

    def _ours(self, operation: Operation, load: Load, save: Path | None = None) -> float:
        return self._seconds(self.ours, load, save, name=operation.name, size=operation.request)

    def _theirs(self, load: Load, size: int, save: Path | None = None) -> float:
        return self._seconds(self.theirs, load, save, size=size)

    def _seconds(self, side: Child, load: Load, save: Path | None, **order: Any) -> float:
        # Answers are written, and compared, once nothing is timed any more.
        taken: float = side.ask(ask=load.as_job(), save=str(save) if save else None, **order)
        return taken
