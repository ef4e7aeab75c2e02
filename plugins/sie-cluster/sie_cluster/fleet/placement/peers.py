"""What a worker's heartbeat says of the keys that it may pull. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sie_cluster.fleet.placement.keys import NO_LORA, Key, token
from sie_cluster.messages.health import ModelReport, WorkerReport

HAD = frozenset({"loaded", "loading"})
ASKED_BEATS, QUIET_BEATS = 1.1, 1.5
"""A worker that is not heard for so many heartbeats is asked for one; and where it does not answer it may be gone: it
counts only for keys whose work goes on."""


@dataclass(frozen=True)
class Peer:
    """One worker."""

    report: WorkerReport
    quiet: bool = False
    """Whether a heartbeat of it is overdue."""

    @property
    def name(self) -> str:
        """The worker's."""
        return self.report.worker

    @cached_property
    def place(self) -> tuple[str, str, str]:
        """Queue pool, resource pool and bundle, as tokens."""
        return token(self.report.pool), token(self.report.resource_pool), token(self.report.bundle)

    @cached_property
    def models(self) -> Mapping[str, tuple[str, ModelReport]]:
        """Name and report of each of its models, by token."""
        return {token(name): (name, each) for name, each in self.report.models.items()}

    def may_pull(self, key: Key) -> bool:
        """Whether it is eligible: it takes work, and of that kind."""
        takes = self.report.up and not self.report.draining
        return takes and self.place == key.place and key.of_profile(token(self.report.profile))

    def has_model(self, key: Key) -> bool:
        """Whether the model is loaded or being loaded."""
        return key.model in self.models and self.models[key.model][1].state in HAD

    def has(self, key: Key) -> bool:
        """Whether the key costs it no load: it has the model, and a LoRA adapter of the bucket."""
        return self.has_model(key) and (key.bucket == NO_LORA or self.lora_of(key) is not None)

    def keeps(self, key: Key) -> bool:
        """Whether the model is to be there always."""
        return key.model in self.models and self.models[key.model][1].kept

    def is_loading(self, key: Key) -> bool:
        """Whether the model is being loaded."""
        return key.model in self.models and self.models[key.model][1].state == "loading"

    def failed(self, key: Key) -> bool:
        """Whether its last load of the model failed."""
        return key.model in self.models and self.models[key.model][1].state == "failed"

    def lora_of(self, key: Key) -> str | None:
        """Name a loaded LoRA adapter of the key's bucket."""
        _, report = self.models[key.model]
        return next((lora for lora in report.loras if key.is_of(lora)), None)

    def held(self, key: Key) -> int:
        """Give the slices that it holds of the key; 0 where those are told together with slices of other keys."""
        return self.held_of_model(key)[0] if key.bucket == NO_LORA else 0

    def held_of_model(self, key: Key) -> tuple[int, int]:
        """Give the slices that it holds of the model, and their cost."""
        if key.model not in self.models:
            return 0, 0
        _, told = self.models[key.model]
        return told.held, told.queued_cost
