"""Workers of a cluster in virtual time: loads, memory, deaths, heartbeats that come late or never; and an oracle."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from random import Random

from sie_cluster.fleet.placement.peers import ASKED_BEATS, QUIET_BEATS, Peer
from sie_cluster.fleet.placement.placement import Placement
from sie_cluster.fleet.placement.waiting import Behind, Seen
from sie_cluster.gateway.capacity.admission import MOST_WAIT_S
from sie_cluster.messages.health import ModelReport, WorkerReport
from sie_cluster.queue.subjects import work_subject

BEAT_S, STEP_S, LOOK_S = 5.0, 1.0, 2.0
MOST_LORAS = 10
STALE_BEATS = 3
NEWS_S = 0.1
SIZE = 100
"""Bytes of a model."""
BUSY_COST = 1 << 20
"""Texts are short: their number alone tells that a worker is busy."""
SPEED = 4.0
"""Messages a second of one key that a worker with its model answers."""


def work(model: str, lora: str | None = None, *, own: bool = False) -> str:
    return work_subject(model, "_default", "default", lora=lora, own=own)


@dataclass(eq=False)
class Worker:
    """One of them, with what it heard of the others."""

    name: str
    room: int
    """Models that fit."""
    placement: Placement
    models: dict[str, float] = field(default_factory=dict)
    """When each is loaded; those used last come last."""
    loras: dict[tuple[str, str], None] = field(default_factory=dict)
    """Models and LoRA adapters of them, those used last last."""
    pulled: frozenset[str] = frozenset()
    backlogs: Behind = field(default_factory=Behind)
    delivered: Counter[str] = field(default_factory=Counter)
    """By key what it was given since the last look."""
    held: Counter[str] = field(default_factory=Counter)
    """By model what it had at work in the last step."""
    told_behind: tuple[str, ...] = ()
    """What it says is behind besides what it counts itself."""
    heard: dict[str, tuple[float, WorkerReport]] = field(default_factory=dict)
    told: object = None
    beat_at: float = 0.0
    seen: dict[str, int] = field(default_factory=dict)
    """What had been answered of each key at the last look."""
    still: frozenset[str] = frozenset()

    @property
    def behind(self) -> tuple[str, ...]:
        return (*self.backlogs.keys, *self.told_behind)

    def report(self, now: float) -> WorkerReport:
        states = {name: "loaded" if now >= at else "loading" for name, at in self.models.items()}
        return WorkerReport(
            self.name, "_default", "default", up=True, beat_s=BEAT_S, pulled=self.pulled, behind=self.behind,
            models={
                name: ModelReport(
                    state, SIZE, held=self.held[name],
                    loras=tuple(lora for model, lora in self.loras if model == name),
                )
                for name, state in states.items()
            },
            memory_used_bytes=SIZE * len(self.models), memory_total_bytes=SIZE * self.room,
        )  # fmt: skip

    def peers(self, now: float) -> list[Peer]:
        fresh = {name: each for name, each in self.heard.items() if now - each[0] <= STALE_BEATS * BEAT_S}
        fresh[self.name] = now, self.report(now)
        return [Peer(report, now - at > QUIET_BEATS * BEAT_S) for at, report in fresh.values()]


@dataclass
class World:
    """All of them."""

    random: Random
    load_s: float = 4.0
    lost: float = 0.0
    """The share of heartbeats that are lost."""
    late_s: float = 0.0
    now: float = 0.0
    workers: dict[str, Worker] = field(default_factory=dict)
    demand: dict[str, str] = field(default_factory=dict)
    """By key the model."""
    loras: dict[str, list[str]] = field(default_factory=dict)
    """By key the LoRA adapters that are asked for."""
    lora_loads: list[tuple[str, str]] = field(default_factory=list)
    """The worker and the adapter of each."""
    loads: list[tuple[float, str, str]] = field(default_factory=list)
    needed: int = 0
    """Loads of an oracle that sees everything: as many copies of a model as its demand takes, each once, and once more
    where it is lost with its worker."""
    rates: dict[str, float] = field(default_factory=dict)
    """By key the messages a second that come; those of other keys are one."""
    waiting: Counter[str] = field(default_factory=Counter)
    """By key the messages that are not answered."""
    bare_s: dict[str, float] = field(default_factory=dict)
    """How long each key has had nobody who pulls."""
    longest_bare_s: float = 0.0
    answered: dict[str, int] = field(default_factory=dict)
    _mail: list[tuple[float, int, str, WorkerReport]] = field(default_factory=list)
    _counter: int = 0

    def join(self, name: str, room: int) -> Worker:
        wanted = {model: self.wanted(model) for model in self.demand.values()}
        worker = self.workers[name] = Worker(name, room, Placement(name, BEAT_S, MOST_LORAS, BUSY_COST, round(SPEED)))
        for other in self.workers.values():  # it asks for heartbeats as it begins
            worker.heard[other.name] = self.now, other.report(self.now)
        for model, before in wanted.items():
            self._need(model, before)
        return worker

    def kill(self, name: str) -> None:
        lost = self.workers.pop(name).models.keys() & set(self.demand.values())
        self.needed += sum(self.copies(model) < self.wanted(model) for model in lost)

    def ask(self, model: str, lora: str | None = None, *, own: bool = False) -> None:
        key = work(model, lora, own=own)
        if key not in self.demand:
            self.demand[key] = model
            self.needed += self.copies(model) == 0
        if lora is not None and lora not in self.loras.setdefault(key, []):
            self.loras[key].append(lora)

    def ask_more(self, model: str, rate: float) -> None:
        """Have so many messages a second come of a model."""
        before = self.wanted(model)
        self.rates[work(model)] = rate
        self._need(model, before)

    def copies(self, model: str) -> int:
        return sum(model in worker.models for worker in self.workers.values())

    def pulling(self, key: str) -> int:
        return sum(key in worker.pulled for worker in self.workers.values())

    def wanted(self, model: str) -> int:
        """The copies that the demand for a model takes, as far as there are workers."""
        return min(ceil(self.rates.get(work(model), 1.0) / SPEED), len(self.workers))

    def _need(self, model: str, before: int) -> None:
        self.needed += max(0, self.wanted(model) - max(before, self.copies(model)))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            self._step()

    def loads_of(self, model: str) -> int:
        return sum(each == model for _, _, each in self.loads)

    def _step(self) -> None:
        while self._mail and self._mail[0][0] <= self.now:
            at, _, to, report = heapq.heappop(self._mail)
            if to in self.workers:
                self.workers[to].heard[report.worker] = at, report
        for worker in self.workers.values():
            decision = worker.placement.decide(self.now, list(self.demand), worker.peers(self.now), worker.still)
            worker.pulled = decision.pulls
            for wish in decision.loads:
                self._load(worker, wish.model)
        self._serve()
        for worker in self.workers.values():
            self._look(worker)
            self._tell(worker)
        self._count()

    def _serve(self) -> None:
        """Have those that pull a key answer, once they have the model; of few messages not each of them gets one."""
        for worker in self.workers.values():
            worker.held.clear()
        for key, model in self.demand.items():
            pulling = [worker for worker in self.workers.values() if key in worker.pulled]
            most = round(MOST_WAIT_S * SPEED * max(1, len(pulling)))  # gateways refuse what would wait longer
            self.waiting[key] = min(most, self.waiting[key] + round(STEP_S * self.rates.get(key, 1.0)))
            given = min(len(pulling), ceil(self.rates.get(key, 1.0)))
            for worker in self.random.sample(pulling, given):
                self._load(worker, model)
                if worker.models[model] <= self.now:
                    worker.models[model] = worker.models.pop(model)
                    for lora in self.loras.get(key, ()):
                        self._load_lora(worker, model, lora)
                    self._answer(worker, key)

    def _answer(self, worker: Worker, key: str) -> None:
        count = min(round(STEP_S * SPEED), self.waiting[key])
        self.waiting[key] -= count
        worker.delivered[key] += count
        worker.held[self.demand[key]] += count
        self.answered[key] = self.answered.get(key, 0) + 1

    def _load(self, worker: Worker, model: str) -> None:
        if model in worker.models:
            return
        if len(worker.models) >= worker.room:
            del worker.models[next(iter(worker.models))]
        worker.models[model] = self.now + self.load_s
        self.loads.append((self.now, worker.name, model))

    def _load_lora(self, worker: Worker, model: str, lora: str) -> None:
        if (model, lora) in worker.loras:
            worker.loras[model, lora] = worker.loras.pop((model, lora))
            return
        of_model = [each for each in worker.loras if each[0] == model]
        if len(of_model) >= MOST_LORAS:
            del worker.loras[of_model[0]]
        worker.loras[model, lora] = None
        self.lora_loads.append((worker.name, lora))

    def _look(self, worker: Worker) -> None:
        if round(self.now / STEP_S) % round(LOOK_S / STEP_S) == 0:
            answered = {key: self.answered.get(key, 0) for key in self.demand}
            worker.still = frozenset(key for key, count in answered.items() if worker.seen.get(key) == count)
            worker.seen = answered
            peers = worker.peers(self.now)
            seen = {
                key: Seen(  # who was given nothing has credit left: nothing waits
                    self.waiting[key] if worker.delivered[key] else 0, worker.delivered[key], LOOK_S, self.load_s,
                    max(1, sum(key in peer.report.pulled for peer in peers)),
                )
                for key, model in self.demand.items()
                if key in worker.pulled and worker.models.get(model, self.now + 1.0) <= self.now
            }  # fmt: skip
            worker.backlogs.look(self.now, seen)
            worker.delivered.clear()

    def _tell(self, worker: Worker) -> None:
        report = worker.report(self.now)
        models = {name: (each.state, each.loras) for name, each in report.models.items()}
        news = report.pulled, report.behind, models
        if news != worker.told or self.now >= worker.beat_at:
            worker.told, worker.beat_at = news, self.now + BEAT_S
            self._send(report)
        for name, (at, _) in worker.heard.items():
            overdue = name in self.workers and self.now - at > ASKED_BEATS * BEAT_S
            if overdue and self.random.random() >= self.lost:
                self._send(self.workers[name].report(self.now))

    def _send(self, report: WorkerReport) -> None:
        for name in self.workers:
            if name != report.worker and self.random.random() >= self.lost:
                self._counter += 1
                at = self.now + NEWS_S + self.random.uniform(0.0, self.late_s)
                heapq.heappush(self._mail, (at, self._counter, name, report))

    def _count(self) -> None:
        for key in self.demand:
            is_bare = not any(key in worker.pulled for worker in self.workers.values())
            self.bare_s[key] = self.bare_s.get(key, 0.0) + STEP_S if is_bare else 0.0
            self.longest_bare_s = max(self.longest_bare_s, self.bare_s[key])
