"""What a cluster on one machine shows of itself: its processes, what waits, and how much is answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from sie_core.cluster.local.asking import ask
from sie_core.cluster.local.programs import Programs
from sie_core.cluster.programs.processes import Program

ANSWERED = "sie_http_requests_total{"
WAITING = "sie_gateway_requests_queued"
INFERENCE = 'method="POST"'


@dataclass(slots=True)
class Table:
    """Lines of text, made anew each time.

    Args:
        programs: What is shown.
        url: The gateway's.
        token: A client's; None where everybody may call.
    """

    programs: Programs
    url: str
    token: str | None = None
    _cpu: dict[int, tuple[float, float]] = field(default_factory=dict)
    _answered: tuple[float, float] | None = None

    def lines(self) -> list[str]:
        """Describe the processes of now. Asks the gateway, which may take a second."""
        rows = [f"{'process':<12} {'pid':>8} {'cpu':>6} {'memory':>9} {'restarts':>8}  bundle"]
        for program in self.programs.all:
            rows += list(self._rows(program))
        return [*rows, "", self._traffic()]

    def _rows(self, program: Program) -> Iterator[str]:
        try:
            process = psutil.Process(program.pid) if program.pid is not None else None
            if process is None:
                yield f"{program.name:<12} {'down':>8} {'':>6} {'':>9} {max(0, program.restarts):>8}"
                return
            row = self._row(program.name, process, str(program.restarts))
            yield f"{row}  {self.programs.bundles.get(program.name, '')}".rstrip()
            for child in process.children():
                yield self._row("  sidecar", child, "")
        except psutil.Error:
            return

    def _row(self, name: str, process: psutil.Process, restarts: str) -> str:
        used, now = sum(process.cpu_times()[:2]), time.monotonic()
        before, then = self._cpu.get(process.pid, (used, now - 1))
        self._cpu[process.pid] = (used, now)
        share = (used - before) / max(now - then, 0.001)
        megabytes = process.memory_info().rss / 1e6
        return f"{name:<12} {process.pid:>8} {share:>6.0%} {megabytes:>6.0f} MB {restarts:>8}"

    def _traffic(self) -> str:
        told = ask(f"{self.url}/metrics", timeout_s=1, token=self.token)
        if told is None:
            return "the gateway does not answer"
        answered = waiting = 0.0
        for line in told.decode().splitlines():
            if line.startswith(ANSWERED) and INFERENCE in line:
                answered += float(line.rpartition(" ")[2])
            elif line.startswith(WAITING):
                waiting = float(line.rpartition(" ")[2])
        now = time.monotonic()
        before, then = self._answered or (answered, now - 1)
        self._answered = (answered, now)
        rate = (answered - before) / max(now - then, 0.001)
        return f"{waiting:.0f} requests wait for workers, {answered:.0f} answered, {rate:.0f} a second"
