"""Estimates the device memory of a load, and remembers what it took."""

from __future__ import annotations

from dataclasses import dataclass

from sie_core.contracts import Device, ModelCard, ResolvedModel
from sie_core.memory.weights import weight_bytes

# The most that a load plausibly takes, as a multiple of its weights. Growth beyond it includes imported libraries, or
# allocations by batches.
MOST_GROWTH = 1.5
# Growth that is plausible for a model of any size: buffers, tokenizers.
SMALL_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Need:
    """The bytes a load will take. A guess (not `sure`) is tried even if it seems not to fit."""

    bytes: int
    sure: bool


class Estimates:
    """The memory that the models of one device take, in bytes: estimated before each load, measured by it.

    Args:
        device: Device of the load. On a CPU floating-point weights are estimated as float32.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        # By id; it counts only for the config with which it was measured.
        self._measured: dict[str, tuple[ResolvedModel, int]] = {}

    def before(self, model: ResolvedModel, card: ModelCard | None, precision: str) -> Need:
        """Estimate a load: by its last measurement, otherwise by the tensors of its files, otherwise by the largest of
        any model.
        """
        if (measured := self._of(model)) is not None:
            return Need(measured, True)
        if card is None:
            return Need(max((size for _, size in self._measured.values()), default=0), False)
        precision = "float32" if self._device.kind == "cpu" else precision
        return Need(weight_bytes(card.path, card.files, precision), True)

    def after(self, model: ResolvedModel, grown: int | None, weights: int, need: Need) -> int:
        """Record how much a load took; return the bytes of the model.

        Args:
            model: The loaded model.
            grown: Growth of the device's use in bytes; None if the probe cannot tell.
            weights: Bytes of the weights from the adapter's facts; 0 if unknown.
            need: The estimate before the load.
        """
        known = weights or (need.bytes if need.sure else 0)
        plausible = grown is not None and (not known or grown <= max(MOST_GROWTH * known, known + SMALL_BYTES))
        size = max(grown or 0, weights) if plausible else self._of(model) or known
        self._measured[model.id] = model, size
        return size

    def _of(self, model: ResolvedModel) -> int | None:
        measured = self._measured.get(model.id)
        return measured[1] if measured is not None and measured[0] == model else None
