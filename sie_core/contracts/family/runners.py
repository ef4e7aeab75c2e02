"""The registration of a runner, which computes a forward pass; the families that use it define its interface."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """One way to run a transformer's forward pass, offered to the families that ask for its `interface`.

    A family tries the runners of its interface that claim the model type and the device. The fastest runner that proves
    itself at load serves; priority breaks ties.
    """

    name: str
    interface: str
    """The Protocol it implements and its version, as its owner names them: `sie.runner/3` of `sie_pytorch.forward`."""
    target: str
    """`module:Class`, imported when first needed."""
    _: KW_ONLY
    model_types: frozenset[str] = frozenset()
    """transformers model types it serves; empty means all."""
    features: frozenset[str] = frozenset()
    """Features of layers it computes, in the words of its `interface`'s owner; empty means that it needs no record.

    It is tried for models whose registered architecture (`sie_architectures`) has no others.
    """
    devices: frozenset[str] = frozenset()
    """Device kinds it serves; empty means all."""
    priority: int = 0
    """Runners of higher priority are tried first, and are displaced only by clearly faster ones."""
    attention_backends: frozenset[str] = frozenset()
    """Values of `SIE_ATTENTION_BACKEND` it may be tried under; empty means all.

    If no installed runner names a value, the start is refused; name every value here that only this runner serves.
    """

    build: str = ""
    """Identifies a build of its compiled code; measurements and refusals of a load apply to the same build only."""
    fast_in: frozenset[str] = frozenset()
    """Precisions in which it is as fast as in float32 on this machine's CPU, even if other runners are slower in them.
    """

    def serves(
        self,
        model_type: str | None,
        device_kind: str,
        attention_backend: str = "auto",
        needs: frozenset[str] | None = None,
    ) -> bool:
        """Whether the runner may be tried for this model, on this device, under this attention backend.

        Args:
            model_type: transformers' model type.
            device_kind: Kind of the device.
            attention_backend: Value of `SIE_ATTENTION_BACKEND`.
            needs: The features of the model's layers; None if no record describes them.
        """
        return (
            (not self.model_types or model_type in self.model_types)
            and (not self.features or (needs is not None and needs <= self.features))
            and (not self.devices or device_kind in self.devices)
            and (not self.attention_backends or attention_backend in self.attention_backends)
        )
