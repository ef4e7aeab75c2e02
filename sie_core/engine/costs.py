"""What models cost: measured at each load, and estimated before it. It must not know who decides by it."""

from __future__ import annotations

from sie_core.contracts import Device, DeviceMemory, ModelCard
from sie_core.memory import weight_bytes


class Costs:
    """The measured costs of the models of one device, in bytes.

    Args:
        device: Where they are loaded; on a CPU floating-point weights are taken to be computed in float32.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._measured: dict[str, int] = {}
        self._families: set[str] = set()

    def estimate(self, model: str, card: ModelCard | None, precision: str) -> tuple[int, bool]:
        """Say what a load will take, and whether that is known: as the last one did, else the tensors of its files.

        Without files it is a guess: the most that any other model takes.
        """
        if model in self._measured:
            return self._measured[model], True
        if card is None:
            return max(self._measured.values(), default=0), False
        wanted = weight_bytes(card.path, card.files, "float32" if self._device.kind == "cpu" else precision)
        return wanted, True

    def record(
        self, model: str, family: str, before: DeviceMemory, after: DeviceMemory, weights: int, estimate: int
    ) -> int:
        """Note the memory before and after a load; return what the model costs.

        The first load of a family also imports its libraries, which stay when the model goes: it is not measured but
        counted, where that can be done.

        Args:
            model: Its id.
            family: The id of its family.
            before: The device's memory before the load.
            after: The same once it was done.
            weights: What the adapter says its weights take.
            estimate: What was known before the load; 0 where nothing was.
        """
        grown = after.used - before.used
        if before.own is not None and after.own is not None:
            grown = after.own - before.own
        counted = weights or estimate
        first = family not in self._families
        self._families.add(family)
        self._measured[model] = counted if first and counted else max(grown, weights, 0)
        return self._measured[model]
