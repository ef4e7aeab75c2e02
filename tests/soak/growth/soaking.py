"""A soak: a server, clients in a process of their own, and what the server holds meanwhile."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.operations.talking import Child, speaking
from tests.bench.processes.running import HOST, Server, serving
from tests.bench.processes.servers import MODEL, ServerSpec
from tests.soak.growth.clients import WARM_UP
from tests.soak.growth.mix import MOST_BODY_BYTES
from tests.soak.growth.models import IDLE_S, LEAKING, LIMIT_BYTES, write_models
from tests.soak.growth.samples import MEASURES, Sample, watching
from tests.soak.growth.slopes import Span, Trend, floors, trend, windows

POINTS = 7
"""A trend stands on at least so many rests, or on so many windows where no models come and go."""
EVERY_S = 0.1

ALLOWED = {"rss": 16.0, "anonymous": 16.0, "files": 2.0, "threads": 2.0}
"""What may be gained over the judged time, whatever its length: the lower end of the interval has to be above it.

A server trims its heap once it has grown by 16 MB, and a heap beside busy neighbours settles late. A heap that gives
nothing away wanders by 4 MB around its level, in steps that last for several rests, so that they look
like a trend; connections and pools of threads come one by one. What a model's tokenizer takes is 7 MB a load, and a
round of loads takes 3 to 5 seconds: left behind at every load it is more than 30 MB in the shortest soak, and a leak of
a few hundred bytes a request shows in ten minutes.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a soak does: for how long, with how many clients that send how many requests a second together."""

    seconds: float
    mix: str = "everything"
    clients: int = 8
    rate: float = 20.0
    threads: int = 1
    """Of a forward pass."""

    @property
    def comes_and_goes(self) -> bool:
        """Whether models are loaded and unloaded meanwhile, so that memory is judged in the rests between."""
        return self.mix == "everything"


@dataclass(slots=True)
class Outcome:
    """What was seen."""

    plan: Plan
    samples: list[Sample]
    rests: list[Span]
    """When nothing was loaded that comes and goes."""
    answers: dict[str, Counter[str]]
    surprises: list[str]
    """Answers that were not expected, and probes that were red at the end."""
    evictions: dict[str, int]
    """Unloads by reason."""
    cpu_seconds: float

    @property
    def requests(self) -> int:
        return sum(sum(answers.values()) for answers in self.answers.values())

    def trend(self, measure: str) -> Trend | None:
        """Estimate how a measure moves after the warm-up; None where the system does not tell it.

        Raises:
            TooFewPointsError: The soak was too short.
        """
        values = [getattr(sample, measure) for sample in self.samples]
        if None in values:
            return None
        return trend(*floors([sample.seconds for sample in self.samples], values, self._judged()))

    def _judged(self) -> list[Span]:
        first, last = self.samples[0].seconds, self.samples[-1].seconds
        later = first + self.plan.seconds * WARM_UP
        if not self.plan.comes_and_goes:
            return windows(later, last, POINTS)
        return [(begin, end) for begin, end in self.rests if begin >= later]

    def growing(self) -> list[str]:
        """Name the measures that grow beyond noise and what is allowed."""
        trends = {measure: self.trend(measure) for measure in MEASURES}
        return [name for name, each in trends.items() if each is not None and each.grows(ALLOWED[name])]


def soak(plan: Plan) -> Outcome:
    """Start a server, have clients work on it, watch it, and stop both.

    Raises:
        ServerError: The server does not start.
        SilentError: The clients ended without a word.
        OSError: The server does not answer any more.
    """
    with TemporaryDirectory() as folder, speaking("clients", 1, package="tests.soak.growth") as clients:
        write_models(Path(folder))
        with serving(_spec(Path(folder)), plan.threads) as server:
            with watching(server.footprint.pid, EVERY_S) as samples:
                seen = _work(plan, server, clients)
            answers = {kind: Counter(counts) for kind, counts in seen["answers"].items()}
            red = [
                f"{path} answers {status}" for path in ("/readyz", "/livez") if (status := server.get(path)[0]) != 200
            ]
            evictions, cpu = _evictions(server), server.footprint.cpu_seconds()
            rests = [(begin, end) for begin, end in seen["rests"]]
            return Outcome(plan, samples, rests, answers, [*seen["surprises"], *red], evictions, cpu)


def _work(plan: Plan, server: Server, clients: Child) -> Any:
    job = {"host": HOST, "port": server.port, "mix": plan.mix, "seconds": plan.seconds, "rate": plan.rate}
    clients.tell(**job, rests=POINTS if plan.comes_and_goes else 0, clients=plan.clients)
    time.sleep(plan.seconds)  # `hear` is bounded, and says nothing before
    return clients.hear()


def _spec(folder: Path) -> ServerSpec:
    def command(port: int) -> list[str]:
        program = str(Path(sys.executable).with_name("sie"))
        return [program, "serve", "--port", str(port), "--preload", MODEL, "--no-hf-fallback", "--log-level", "WARNING"]

    variables = {
        "SIE_MODELS_DIR": str(folder),
        "SIE_PINNED_MODELS": f"{MODEL},{LEAKING}",
        "SIE_MEMORY_LIMIT_BYTES": str(LIMIT_BYTES),
        "SIE_IDLE_EVICT_S": str(IDLE_S),
        "SIE_MAX_REQUEST_BODY_BYTES": str(MOST_BODY_BYTES),
    }
    return ServerSpec("soak", "SIE", command, "/readyz", ("base64",), variables=variables, folder=folder)


def _evictions(server: Server) -> dict[str, int]:
    told = server.get("/metrics")[1].decode()
    counted: Counter[str] = Counter()
    for reason, count in re.findall(r'^sie_model_evictions_total\{.*reason="(\w+)".*\} (\S+)$', told, re.MULTILINE):
        counted[reason] += int(float(count))
    return dict(counted)
