"""Who takes a key that nobody has: the same choice wherever the same heartbeats were heard. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from statistics import mean

from sie_cluster.fleet.placement.keys import NO_LORA, Key, weight
from sie_cluster.fleet.placement.peers import HAD, Peer


class Choice:
    """What workers have, and what they were chosen for and have not yet.

    Args:
        peers: All workers.
        most_loras: LoRA adapters that a model has at a time.
        sizes: The bytes of models, by token, as they were told last.
    """

    def __init__(self, peers: Iterable[Peer], most_loras: int, sizes: Mapping[str, int]) -> None:
        self._most_loras, self._sizes = most_loras, sizes
        self._models: dict[str, set[str]] = {}
        self._loras: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By worker and model the LoRA adapters that it has, and the buckets that it was chosen for."""
        self._promised: defaultdict[str, set[str]] = defaultdict(set)
        for peer in peers:
            self._models[peer.name] = {model for model, (_, told) in peer.models.items() if told.state in HAD}
            for model, (_, told) in peer.models.items():
                self._loras[peer.name, model].update(told.loras)

    def promise(self, peer: Peer, key: Key) -> None:
        """Count a key for a worker that was chosen for it, and may not have it yet."""
        if peer.has(key):
            return
        if not peer.has_model(key):
            self._promised[peer.name].add(key.model)
        if key.bucket != NO_LORA:
            self._loras[peer.name, key.model].add(f"\0{key.bucket}")

    def best(self, key: Key, peers: Iterable[Peer], avoided: Collection[str] = ()) -> Peer | None:
        """Choose one of some workers.

        It has room, and few models, or few LoRA adapters; who failed to load the model, or is avoided, comes last.
        """
        return max(peers, key=lambda peer: self._merit(key, peer, avoided), default=None)

    def has_room(self, key: Key, peer: Peer) -> bool:
        """Whether a worker can load what it lacks without unloading anything, as far as is known."""
        loras = self._loras[peer.name, key.model]
        if key.bucket != NO_LORA and len(loras) >= self._most_loras:
            return False
        total, used = peer.report.memory_total_bytes, peer.report.memory_used_bytes
        if total is None or used is None or peer.has_model(key) or key.model in self._promised[peer.name]:
            return True
        needed = self._size(key.model) + sum(map(self._size, self._promised[peer.name]))
        return used + needed <= total

    def _merit(self, key: Key, peer: Peer, avoided: Collection[str]) -> tuple[object, ...]:
        loras = len(self._loras[peer.name, key.model]) if key.bucket != NO_LORA else 0
        # A second copy of a model for its LoRA adapters pays once the first has about half of those it takes.
        at_home = key.bucket != NO_LORA and peer.has_model(key) and 2 * loras < self._most_loras
        models = len(self._models[peer.name] | self._promised[peer.name])
        return (
            peer.name not in avoided,
            not peer.failed(key),
            self.has_room(key, peer),
            at_home,
            not peer.report.saturated,
            -loras,
            -models,
            weight(key.subject, peer.name),
        )

    def _size(self, model: str) -> int:
        """Give the bytes of a model; where they are not known, those of the models that are known, on average."""
        if model not in self._sizes and self._sizes:
            return self._mean
        return self._sizes.get(model, 0)

    @cached_property
    def _mean(self) -> int:
        return round(mean(self._sizes.values()))
