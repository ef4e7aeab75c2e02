"""What a cluster on one machine shows of itself: its processes, what waits, and how much is answered."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx
import orjson
import psutil

from sie_cluster.local.programs import Programs
from sie_cluster.programs.processes import Program

ANSWERED = "sie_http_requests_total{"
WAITING = "sie_gateway_requests_queued"
INFERENCE = 'method="POST"'


def ask(url: str, timeout_s: float, token: str | None = None) -> bytes | None:
    """Return the body of an answer to a GET; None where there is none, or not the whole of it. No proxy is asked."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        reply = httpx.get(url, headers=headers, timeout=timeout_s, trust_env=False, verify=False)
        return reply.raise_for_status().content
    except httpx.HTTPError:
        return None


def heard_workers(url: str, token: str | None, timeout_s: float) -> dict[str, bool] | None:
    """Tell of each worker that a gateway hears of whether it takes work; None where the gateway does not answer.

    Args:
        url: The gateway's.
        token: A client's; None where everybody may call.
        timeout_s: How long it may take.
    """
    told = ask(f"{url}/health", timeout_s, token)
    try:
        workers = None if told is None else orjson.loads(told or b"{}").get("workers", ())
    except orjson.JSONDecodeError:
        return None
    return None if workers is None else {str(each.get("name")): bool(each.get("healthy")) for each in workers}


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
        workers = heard_workers(self.url, self.token, timeout_s=1)
        for program in self.programs.all:
            rows += list(self._rows(program, workers))
        return [*rows, "", self._traffic()]

    def _rows(self, program: Program, workers: Mapping[str, bool] | None) -> Iterator[str]:
        try:
            process = psutil.Process(program.pid) if program.pid is not None else None
            if process is None:
                yield f"{program.name:<12} {'down':>8} {'':>6} {'':>9} {max(0, program.restarts):>8}"
                return
            row = self._row(program.name, process, str(program.restarts))
            bundle = self.programs.bundles.get(program.name, "")
            idle = bundle and workers is not None and not workers.get(program.name)
            yield f"{row}  {bundle}{', takes no work' if idle else ''}".rstrip()
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
