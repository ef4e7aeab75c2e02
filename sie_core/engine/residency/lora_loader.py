"""Loads the LoRA adapters of one model: fetches their files, then places them on the device. Event loop only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sie_core.cache import HeldWeights, WeightChain
from sie_core.concurrency.threads import on_thread, on_thread_to_its_end
from sie_core.contracts import Adapter, Lora, LoraConfig, ModelLoadError, WeightRequest
from sie_core.engine.models.lease import Leases
from sie_core.engine.models.loras import LoadedLora
from sie_core.engine.residency.memory import Need, trim_heap
from sie_core.engine.residency.residency import Residency
from sie_core.memory import weight_bytes

# The precision that the estimate before a load assumes: the widest that adapters keep their factors in.
PRECISION = "float32"

clock = time.monotonic


@dataclass(frozen=True, slots=True)
class LoraLoader:
    """Loads the LoRA adapters of one model.

    Args:
        model: The model's id.
        adapter: The model's adapter, which loads them.
        leases: The model's. A load at work holds one, so that the model stays even if its clients leave.
        declared: The LoRA adapters its config names.
        weights: Where the files of undeclared ones come from.
        residency: Places them on the device.
    """

    model: str
    adapter: Adapter
    leases: Leases
    declared: Mapping[str, LoraConfig]
    weights: WeightChain
    residency: Residency

    async def load(self, name: str) -> LoadedLora:
        """Load the adapter `name`, declared or a repository. Unused models and adapters are evicted for it.

        Raises:
            ModelLoadError: With the failure's class; `OOM` where no room could be made.
            OutOfDeviceMemory: The device had no room after all.
            DeviceLost: The device is lost until a restart; every request is refused.
        """
        config = self.declared.get(name) or LoraConfig(name)
        held, wanted = await on_thread(f"sie-fetch-{name}", lambda: _fetch(config, self.weights))
        with held:
            who = f"the LoRA adapter {name} of {self.model}"
            need = Need(wanted, True)
            placed = await self.residency.place(
                who, lambda: need, lambda: self._load(name, held.folder), model=self.model
            )
            return placed.result

    async def _load(self, name: str, folder: Path) -> LoadedLora:
        started = clock()
        with self.leases.acquire():
            lora = await on_thread_to_its_end(f"sie-lora-{name}", lambda: self._load_now(name, folder))
        return LoadedLora(lora, clock() - started)

    def _load_now(self, name: str, folder: Path) -> Lora:
        try:
            return self.adapter.load_lora(name, folder)
        finally:
            trim_heap()


def _fetch(config: LoraConfig, weights: WeightChain) -> tuple[HeldWeights, int]:
    # Find the files of an adapter; return them with the bytes it will take.
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
