"""Short requests of an honest client, alone and beside an attack, and the most memory that the server then took."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson

from tests.bench.clients.closed_loop import Answer, Round, drive
from tests.bench.clients.formats import FORMATS
from tests.bench.fairness.attacks import ATTACKS, EXTRACTOR, MULTI, SIGHTED, pixel
from tests.bench.fairness.models import write_models
from tests.bench.processes.environments import ROOT
from tests.bench.processes.running import HOST, Server, serving
from tests.bench.processes.servers import MODEL, ServerSpec
from tests.bench.workload.words import sentences
from tests.soak.many.serving import memory_group

FORM = "base64"
LIMIT_S = 300.0
PAUSE_S = 0.02
PROBE_S = 0.5
SPARE_BYTES = 200_000_000
"""What an attack may take beside one and a half times its body and its reply."""
GROUP_BYTES = 2**30
WARM_S = 300.0
TEXT = {"items": [{"text": "a"}]}
WARM: dict[str, tuple[str, dict[str, Any]]] = {
    SIGHTED: (
        f"/v1/encode/{SIGHTED}",
        {"items": [{"images": [{"data": b64encode(pixel()).decode(), "format": "png"}]}] * 64},
    ),
    MULTI: (f"/v1/encode/{MULTI}", {**TEXT, "params": {"output_types": ["multivector"]}}),
    EXTRACTOR: (f"/v1/extract/{EXTRACTOR}", {**TEXT, "params": {"labels": ["a"]}}),
}
"""What has each model loaded, and what its library needs for a first batch."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What the honest client saw: milliseconds of its requests, and statuses that are not 200."""

    p50_ms: float
    p99_ms: float
    answered: int
    failures: Counter[str]


@dataclass(slots=True)
class Outcome:
    """One attack."""

    name: str
    alone: Waits
    beside: Waits
    answers: Counter[str] = field(default_factory=Counter)
    """Of the attackers, by status."""
    surprises: set[str] = field(default_factory=set)
    body: int = 0
    reply: int = 0
    attacks: int = 1
    grown: int = 0
    """Bytes of the peak above rest."""
    red: list[str] = field(default_factory=list)
    """Probes that were not 200."""

    @property
    def allowed(self) -> int:
        """The bytes it may take; several attacks at once what each of them may."""
        return int(1.5 * (self.body + self.reply)) + self.attacks * SPARE_BYTES

    @property
    def problems(self) -> list[str]:
        """What no attack may bring about, in words."""
        found = [*self.red, *(f"the attacker got {status}" for status in sorted(self.surprises))]
        found += [f"the honest client got {status} {count} times" for status, count in self.beside.failures.items()]
        if self.grown > self.allowed:
            found.append(f"{self.grown / 1e6:.0f} MB above rest, {self.allowed / 1e6:.0f} are allowed")
        return found if self.beside.answered else [*found, "the honest client got no answer"]


def spec(folder: Path, configs: Path, group: Path | None) -> ServerSpec:
    """Describe the server that is attacked, in a memory cgroup where there is one."""
    program = str(Path(sys.executable).with_name("sie"))
    enter = [] if group is None else ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]

    def command(port: int) -> list[str]:
        asked = ["serve", "--port", str(port), "--preload", MODEL, "--no-hf-fallback", "--log-level", "WARNING"]
        return [*enter, program, *asked]

    variables = {"SIE_MODELS_DIR": str(configs), "SIE_RUNNER": "priority"}
    return ServerSpec("attacked", "SIE", command, "/readyz", (FORM,), variables=variables, folder=folder)


@contextmanager
def attacked(folder: Path, threads: int, numbers: Sequence[int], limit: int = GROUP_BYTES) -> Iterator[Server]:
    """Run a server with the models of attacks loaded, in a memory cgroup of `limit` bytes where one can be made."""
    write_models(folder, folder / "hold")
    with memory_group(limit) as group, serving(spec(folder, folder / "configs", group), threads) as server:
        warm(server, sorted({model for number in numbers for model in ATTACKS[number].models}))
        yield server


def measure(threads: int, seconds: float, share: float) -> list[Outcome]:
    """Measure every attack alone."""
    numbers = range(len(ATTACKS))
    with TemporaryDirectory() as folder, attacked(Path(folder), threads, numbers) as server:
        alone = asyncio.run(short(server, seconds))
        return [asyncio.run(besiege(server, [number], seconds, share, alone)) for number in numbers]


def warm(server: Server, models: Sequence[str]) -> None:
    """Have models loaded."""
    for model in models:
        path, body = WARM[model]
        until = time.monotonic() + WARM_S
        while (status := _post(server, path, body)) != 200:
            if status != 503 or time.monotonic() > until:
                raise RuntimeError(f"{model} answers {status}")
            time.sleep(0.2)


async def besiege(server: Server, numbers: Sequence[int], seconds: float, share: float, alone: Waits) -> Outcome:
    """Send attacks side by side for so long, with the honest client beside them."""
    rest = _reset_peak(server)
    outcome = Outcome(", ".join(ATTACKS[number].name for number in numbers), alone, alone, attacks=len(numbers))
    over = asyncio.Event()
    probing = asyncio.create_task(_probe(server, over, outcome.red))
    with attackers(server, numbers, share) as child:
        outcome.beside = await short(server, seconds)
        assert child.stdin is not None
        child.stdin.close()
        told = json.loads(await asyncio.to_thread(child.stdout.readline))  # type: ignore[union-attr]
    over.set()
    await probing
    outcome.grown = (server.footprint.peak_bytes() or 0) - rest
    for number, seen in zip(numbers, told, strict=True):
        attack = ATTACKS[number]
        outcome.answers.update(seen["answers"])
        crowded = {"503"} if len(numbers) > 1 else set()  # together they may find the queue full
        outcome.surprises |= set(seen["answers"]) - attack.answers - crowded
        outcome.body += attack.at_once * seen["body"]
        outcome.reply += attack.at_once * seen["reply"]
    return outcome


@contextmanager
def attackers(server: Server, numbers: Sequence[int], share: float) -> Iterator[subprocess.Popen[str]]:
    """Run attacks in a process of their own until the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.fairness.attacking"],
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        job: dict[str, Any] = {"host": HOST, "port": server.port, "attacks": list(numbers), "share": share}
        child.stdin.write(json.dumps(job) + "\n")
        child.stdin.flush()
        child.stdout.readline()
        yield child
    finally:
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


async def short(server: Server, seconds: float) -> Waits:
    """Send short requests one after the other for so long."""
    random = np.random.default_rng(11)
    bodies = [FORMATS[FORM].request(HOST, MODEL, [sentences(8, random)]) for _ in range(64)]
    found = await drive(HOST, server.port, Round(bodies, 1, seconds, pause_s=PAUSE_S), 1, seconds + LIMIT_S)
    good = [1000 * answer.seconds for answer in found.answers if answer.status == 200]
    failures = Counter(map(_named, (answer for answer in found.answers if answer.status != 200)))
    if found.lost:
        failures["a broken connection"] += found.lost
    p50, p99 = (float(np.percentile(good, part)) if good else float("inf") for part in (50, 99))
    return Waits(p50, p99, len(good), failures)


def _named(answer: Answer) -> str:
    try:
        return f"{answer.status} {orjson.loads(answer.body)['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return str(answer.status)


async def _probe(server: Server, over: asyncio.Event, red: list[str]) -> None:
    while not over.is_set():
        for path in ("/livez", "/readyz"):
            try:
                status = (await asyncio.to_thread(server.get, path, 30.0))[0]
            except OSError as error:
                red.append(f"{path}: {type(error).__name__}")
            else:
                if status != 200:
                    red.append(f"{path} is {status}")
        await asyncio.sleep(PROBE_S)


def settled(server: Server, rest: int, limit_s: float = 60.0, still_s: float = 0.0) -> int:
    """Wait until no more than `SPARE_BYTES` beyond `rest` are resident, and it got no less for so long; return them."""
    until = time.monotonic() + limit_s
    least, since = server.footprint.rss_bytes() - rest, time.monotonic()
    while (least > SPARE_BYTES or time.monotonic() < since + still_s) and time.monotonic() < until:
        time.sleep(0.2)
        beyond = server.footprint.rss_bytes() - rest
        if beyond < least:
            least, since = beyond, time.monotonic()
    return least


def _reset_peak(server: Server) -> int:
    """Forget the largest resident memory so far; return what is resident now."""
    Path(f"/proc/{server.footprint.pid}/clear_refs").write_text("5")
    return server.footprint.peak_bytes() or 0


def _post(server: Server, path: str, body: dict[str, Any]) -> int:
    import http.client

    connection = http.client.HTTPConnection(HOST, server.port, timeout=WARM_S)
    try:
        connection.request("POST", path, orjson.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()
