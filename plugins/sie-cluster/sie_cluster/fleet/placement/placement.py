"""Which keys a worker pulls, and which models it loads before it does: a function of what was heard, and of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sie_cluster.fleet.placement.choosing import Choice
from sie_cluster.fleet.placement.keys import NO_LORA, Key, key_of, weight
from sie_cluster.fleet.placement.peers import Peer
from sie_cluster.messages.wishes import Wish

REST_S = 60.0
"""After so long with little to do all but one of a key's workers pull it no more; they keep what they loaded.
Those that are to have the model always go on."""
AVOIDED_BEATS = 6.0
"""For so many heartbeats a worker that was chosen and does not pull is chosen last."""
PROMISED_BEATS = 1.0
"""For so many heartbeats the worker that was chosen is taken to be at it: it says so at once."""
MOST_SIZES = 10_000
"""Models whose size is remembered."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What one worker does from now on."""

    pulls: frozenset[str] = frozenset()
    """The subjects of its keys."""
    loads: Collection[Wish] = ()
    """Loaded first, and pulled then: what workers that have it cannot keep up with."""


class Placement:
    """The decisions of one worker. Every worker makes them by the same rules.

    It remembers whom it took to be chosen until that is heard, and since when a key has little to do.

    Args:
        worker: Its name.
        beat_s: Between two heartbeats.
        most_loras: LoRA adapters that a model has at a time.
        busy_cost: Of the work held of a model, from which on all who have it pull: a batch has as much at most.
        busy_slices: The same as a number: short texts make full batches of little cost.
    """

    def __init__(self, worker: str, beat_s: float, most_loras: int, busy_cost: int, busy_slices: int) -> None:
        self._worker, self._beat_s, self._most_loras = worker, beat_s, most_loras
        self._busy_cost, self._busy_slices = busy_cost, busy_slices
        self._chosen: dict[str, tuple[str, float]] = {}
        """By key who was chosen, and until when that is expected to be heard."""
        self._avoided: dict[tuple[str, str], float] = {}
        self._calm_since: dict[str, float] = {}
        self._sizes: dict[str, int] = {}
        """The bytes of models, by token, those told last last; also of models that are loaded nowhere just now."""

    def decide(self, now: float, wanted: Iterable[str], peers: Sequence[Peer], still: Collection[str] = ()) -> Decision:
        """Say what this worker does.

        Args:
            now: Seconds.
            wanted: The keys that have work, the ones asked for first before the others.
            peers: The workers that are heard, this one included.
            still: Of the keys those whose work does not move.
        """
        self._forget(now)
        self._learn_sizes(peers)
        choice, pulled = Choice(peers, self._most_loras, self._sizes), _pulled(peers)
        too_many = frozenset().union(
            *(_too_many(peer, self._most_loras) for peer in peers), *(_crowded_out(peer, choice) for peer in peers)
        )
        behind = frozenset[str]().union(*(peer.report.behind for peer in peers))
        pulls = set[str]()
        loads: dict[Wish, None] = {}
        left: list[tuple[Key, list[Peer]]] = []
        for key in filter(None, map(key_of, wanted)):
            able = [peer for peer in peers if peer.may_pull(key)]
            alive = [peer for peer in able if not (peer.quiet and key.subject in still)]
            fewer = [peer for peer in alive if (peer.name, key.subject) not in too_many]
            if any(peer.has(key) or choice.has_room(key, peer) for peer in fewer):
                alive = fewer
            having = [peer for peer in alive if peer.has(key)]
            is_behind = key.subject in behind
            if having:
                self._chosen.pop(key.subject, None)
                if self._pulls_had(key, having, now, is_behind=is_behind):
                    pulls.add(key.subject)
                if is_behind and (wish := self._copy(key, able, having, choice)) is not None:
                    loads[wish] = None
            elif key.is_shared and is_behind and self._is_among(alive):
                pulls.add(key.subject)
            elif (taker := self._taker(key, alive, pulled, now)) is None:
                left.append((key, alive))
            else:
                choice.promise(taker, key)
                pulls |= {key.subject} if taker.name == self._worker else set()
        for key, alive in left:
            if (taker := self._choose(key, alive, choice, now)) is not None and taker.name == self._worker:
                pulls.add(key.subject)
        return Decision(frozenset(pulls), tuple(loads))

    def _is_among(self, peers: Iterable[Peer]) -> bool:
        return any(peer.name == self._worker for peer in peers)

    def _pulls_had(self, key: Key, having: Sequence[Peer], now: float, *, is_behind: bool) -> bool:
        """Whether this worker pulls a key that some have: where it is one of them and there is much to do, or first."""
        held, cost = (sum(each) for each in zip(*(peer.held_of_model(key) for peer in having), strict=True))
        is_busy = cost >= self._busy_cost or held >= self._busy_slices
        if is_behind or is_busy or any(peer.report.saturated for peer in having):
            self._calm_since.pop(key.subject, None)
            is_calm = False
        else:
            is_calm = now - self._calm_since.setdefault(key.subject, now) >= REST_S
        # Who is only being loaded waits for that, unless nobody is further.
        ready = [peer for peer in having if not peer.is_loading(key)] or having
        own = next((peer for peer in ready if peer.name == self._worker), None)
        return own is not None and (not is_calm or own.keeps(key) or own is _first(key, ready))

    def _copy(self, key: Key, able: Sequence[Peer], having: Sequence[Peer], choice: Choice) -> Wish | None:
        """Say what this worker loads for a key that those who have it cannot keep up with; one does at a time."""
        others = [peer for peer in able if _may_copy(key, peer) and choice.has_room(key, peer)]
        best = None if any(peer.is_loading(key) for peer in able) else choice.best(key, others)
        if best is None or best.name != self._worker:
            return None
        name, _ = having[0].models[key.model]
        return Wish(name, having[0].lora_of(key))

    def _taker(self, key: Key, alive: Sequence[Peer], pulled: Mapping[str, Collection[str]], now: float) -> Peer | None:
        """Find who takes a key that nobody has already: who pulls it, else who was chosen a moment ago."""
        if pulling := [peer for peer in alive if peer.name in pulled.get(key.subject, ())]:
            self._chosen.pop(key.subject, None)
            return _first(key, pulling)
        name, until = self._chosen.get(key.subject, ("", 0.0))
        if name not in (self._worker, "") and now >= until:
            self._avoided[key.subject, name] = now + AVOIDED_BEATS * self._beat_s
            return None
        return next((peer for peer in alive if peer.name == name), None)

    def _choose(self, key: Key, alive: Sequence[Peer], choice: Choice, now: float) -> Peer | None:
        """Choose who takes a key that nobody has."""
        avoided = {worker for work, worker in self._avoided if work == key.subject}
        taker = choice.best(key, alive, avoided)
        if taker is not None:
            choice.promise(taker, key)
            self._chosen[key.subject] = taker.name, now + PROMISED_BEATS * self._beat_s
        return taker

    def _learn_sizes(self, peers: Iterable[Peer]) -> None:
        sizes = dict[str, int]()
        for peer in peers:
            for model, (_, told) in peer.models.items():
                if told.memory_bytes is not None:
                    sizes[model] = max(told.memory_bytes, sizes.get(model, 0))
        kept = {model: size for model, size in self._sizes.items() if model not in sizes} | sizes
        self._sizes = dict(islice(kept.items(), max(0, len(kept) - MOST_SIZES), None))

    def _forget(self, now: float) -> None:
        self._avoided = {each: until for each, until in self._avoided.items() if until > now}


def _may_copy(key: Key, peer: Peer) -> bool:
    return not (peer.quiet or peer.has(key) or peer.failed(key))


def _too_many(peer: Peer, most_loras: int) -> Iterator[tuple[str, str]]:
    """Name the worker with each key that it pulls beyond the LoRA adapters that it can have of a model."""
    of_model = defaultdict[str, list[str]](list)
    for key in filter(None, map(key_of, peer.report.pulled)):
        if key.bucket != NO_LORA:
            of_model[key.model].append(key.subject)
    for keys in of_model.values():
        if len(keys) > most_loras:
            for work in sorted(keys, key=lambda work: weight(work, peer.name))[most_loras:]:
                yield peer.name, work


def _crowded_out(peer: Peer, choice: Choice) -> Iterator[tuple[str, str]]:
    """Name the worker with each key that it pulls and has no room for: it would unload what it needs for another."""
    for key in filter(None, map(key_of, peer.report.pulled)):
        if not (key.is_shared or peer.has_model(key) or choice.has_room(key, peer)):
            yield peer.name, key.subject


def _first(key: Key, peers: Iterable[Peer]) -> Peer:
    """Find the worker that goes on where one is enough."""
    return max(peers, key=lambda peer: weight(key.subject, peer.name))


def _pulled(peers: Iterable[Peer]) -> Mapping[str, Collection[str]]:
    """Give the workers that pull each key, by its subject."""
    pulled: dict[str, set[str]] = {}
    for peer in peers:
        for work in peer.report.pulled:
            pulled.setdefault(work, set()).add(peer.name)
    return pulled
