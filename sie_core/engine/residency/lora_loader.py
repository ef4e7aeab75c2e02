"""Loads LoRA adapters of one model: their files first, then, once there is room, onto the device. Event loop only.

It must not know which are loaded already, requests, or what a failure means to them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sie_core.cache import HeldWeights, WeightChain
from sie_core.concurrency.threads import on_thread, on_thread_to_its_end
from sie_core.contracts import Adapter, Lora, LoraConfig, ModelLoadError, WeightRequest
from sie_core.engine.models.lease import UseCount
from sie_core.engine.models.loras import LoadedLora
from sie_core.engine.residency.heap import trim_heap
from sie_core.engine.residency.turns import Turns
from sie_core.memory import weight_bytes

PRECISION = "float32"
"""What the estimate before a load takes the factors to be kept in: the widest they may be."""

clock = time.monotonic


@dataclass(frozen=True, slots=True)
class LoraLoader:
    """What loads the adapters of one model.

    Args:
        model: The model's id.
        adapter: What computes it.
        use: Who uses the model: a load at work on the device does, whoever still waits for it.
        declared: The LoRA adapters its config names.
        weights: Where the files of the others come from.
        turns: Gives the device, with room made.
    """

    model: str
    adapter: Adapter
    use: UseCount
    declared: Mapping[str, LoraConfig]
    weights: WeightChain
    turns: Turns

    async def load(self, name: str) -> LoadedLora:
        """Load the adapter `name`, declared or a repository; models and adapters that nobody uses make room for it.

        Raises:
            ModelLoadError: With the failure's class; `OOM` where no room could be made.
            OutOfDeviceMemory: The device had no room after all.
            DeviceLost: Only a new process gets it back; every request is turned away.
        """
        config = self.declared.get(name) or LoraConfig(name)
        held, wanted = await on_thread(f"sie-fetch-{name}", lambda: _fetch(config, self.weights))
        with held:
            who = f"the LoRA adapter {name} of {self.model}"
            async with self.turns.take(who, lambda: (wanted, True), beside=self.model):
                started = clock()
                lora = await self.turns.fit(self.model, who, lambda: self._load(name, held.folder))
                return LoadedLora(lora, clock() - started)

    async def _load(self, name: str, folder: Path) -> Lora:
        self.use.enter()
        try:
            return await on_thread_to_its_end(f"sie-lora-{name}", lambda: self._load_now(name, folder))
        finally:
            self.use.leave()

    def _load_now(self, name: str, folder: Path) -> Lora:
        try:
            return self.adapter.load_lora(name, folder)
        finally:
            trim_heap()


def _fetch(config: LoraConfig, weights: WeightChain) -> tuple[HeldWeights, int]:
    """Find the files of an adapter; return them with what it will take."""
    held = _hold(config, weights)
    files = [file.name for file in held.folder.glob("*.safetensors")]
    return held, weight_bytes(held.folder, files, PRECISION)


def _hold(config: LoraConfig, weights: WeightChain) -> HeldWeights:
    if config.weights_path is None:
        return weights.hold(WeightRequest(config.hf_id or config.name, config.hf_revision))
    folder = Path(config.weights_path)
    if not folder.is_dir():
        raise ModelLoadError("NOT_FOUND", f"The `weights_path` of {config.name} is not a folder on this machine.")
    return HeldWeights(folder, None)
