"""What models cost: measured at each load, and estimated before it. It must not know who decides by it."""

from __future__ import annotations

from sie_core.contracts import Device, DeviceMemory, ModelCard
from sie_core.engine.residency.memory import UNKNOWN
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

    def record(self, model: str, family: str, grown: int | None, weights: int, estimate: int) -> int:
        """Note what a load took; return what the model costs.

        Two loads are not measured: the first of a family also imports its libraries, which stay when the model goes,
        and beside one that was not alone something else took or gave back memory. What was measured before counts then,
        else what the weights take.

        Args:
            model: Its id.
            family: The id of its family.
            grown: By how much the use of the device grew; None where it cannot be told, or not of the load alone.
            weights: What the adapter says its weights take; 0 where it does not.
            estimate: What was known before the load; 0 where nothing was.
        """
        known = self._measured.get(model) or weights or estimate
        first = family not in self._families
        self._families.add(family)
        unmeasured = known and (first or grown is None)
        self._measured[model] = known if unmeasured else max(grown or 0, weights)
        return self._measured[model]


def growth(before: DeviceMemory, after: DeviceMemory) -> int | None:
    """Return by how many bytes the use of a device grew, this process's own where the probe tells; None if unknown."""
    if UNKNOWN in (before, after):
        return None
    if before.own is not None and after.own is not None:
        return after.own - before.own
    return after.used - before.used
