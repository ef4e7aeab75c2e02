"""A forward pass by the kernels with heads in NumPy, as an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sie_text.heads import Choice, Head, HeadAdapter, joined
from sie_text.recipe import NotUnderstoodError, OwnCodeError, heed_auto_map
from sie_text.sequences import PackedBatch

from sie_core.contracts import Adapter, FamilyUnfitError, ItemOutput, LoadContext, Lora, ModelCard, Unit
from sie_cpu.forward.batch import Floats
from sie_cpu.forward.low_rank import load_lora
from sie_cpu.forward.running import CpuRunner


class CpuModel(HeadAdapter):
    """One forward pass serves all that a request asks of the heads. A family adds `prepare`."""

    def __init__(self, runner: CpuRunner, heads: Iterable[Head], *, gives_types: bool = False) -> None:
        """Keep the parts; `gives_types`: whether token types go with the tokens."""
        super().__init__(heads)
        self._runner = runner
        self._gives_types = gives_types

    def run(self, units: Sequence[Unit]) -> tuple[PackedBatch, Floats]:
        """Compute the states of one batch.

        Raises:
            OutOfDeviceMemory: No memory is left for it.
        """
        batch, lora = PackedBatch([unit.payload for unit in units]), Choice.of(units).lora
        adapter = None if lora is None else lora.payload
        return batch, self._runner.states(batch, gives_types=self._gives_types, adapter=adapter)

    def await_device(self, units: Sequence[Unit], raw: Any) -> bool:
        """Wait for nothing: `run` returns arrays."""
        return True

    def finish(self, units: Sequence[Unit], raw: tuple[PackedBatch, Floats]) -> Sequence[ItemOutput]:
        """Apply the heads, on CPU threads; all rows of an output share an array that nothing else holds."""
        batch, states = raw
        choices = Choice.of(units).choices
        return joined([(output, self._heads[output].apply(states, batch, chosen)) for output, chosen in choices])

    def load_lora(self, name: str, folder: Path) -> Lora:
        """Read a LoRA adapter for the model's layers.

        Raises:
            ModelLoadError: It is no plain LoRA, does not fit, or is damaged.
        """
        return load_lora(name, folder, self._runner)

    def unload(self) -> None:
        """Free the weights now."""
        del self._runner, self._heads


def served(context: LoadContext, make: Callable[[LoadContext], Adapter]) -> Adapter:
    """Load a model, and word its refusal.

    Raises:
        FamilyUnfitError: The kernels do not run it.
    """
    try:
        return make(context)
    except NotUnderstoodError as reason:
        why = str(reason).rstrip(".")
        raise FamilyUnfitError(f"The CPU kernels do not serve {context.model.id}: {why}.") from reason


def notes_of_code(context: LoadContext, card: ModelCard, *auto_classes: str, dense: bool = False) -> dict[str, str]:
    """Refuse weights that were made for code of their own, or return the note that it is ignored.

    Raises:
        NotUnderstoodError: The model's config trusts the code, which another family may run.
        OwnCodeError: See `heed_auto_map`.
    """
    try:
        return heed_auto_map(context, card.config, *auto_classes, runs="elsewhere" if dense else "nowhere")
    except OwnCodeError as error:
        if context.model.config.trust_remote_code:
            raise NotUnderstoodError(str(error)) from error
        raise
