"""A runner with heads, as an adapter: packed batches of token sequences in, outputs of the heads out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sie_text.heads import Choice, Head, HeadAdapter, joined
from sie_text.sequences import PackedBatch

from sie_core.contracts import ItemOutput, Lora, Unit, device_errors
from sie_pytorch.forward.lora.files import load_lora
from sie_pytorch.forward.protocol import Batch
from sie_pytorch.forward.transfers import HostCopy, Transfers

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner

Computed = tuple[Any, list[HostCopy]]
"""A head's layout of a batch, and its tensors on their way to the host."""


class PackedModel(HeadAdapter):
    """One forward pass serves all that a request asks of the heads. A family adds `prepare`.

    The payload of a unit is its `TokenSequence`, the key a `Choice`.
    """

    def __init__(
        self, runner: BuiltRunner, heads: Iterable[Head], device: torch.device, threads: int, *, gives_types: bool
    ) -> None:
        """Keep the parts.

        Args:
            runner: From ids to states.
            heads: From states to outputs, each of another kind.
            device: Device of runner and heads.
            threads: CPU threads PyTorch may use.
            gives_types: Whether token types go with the tokens.

        Raises:
            ValueError: Two heads make the same output.
        """
        super().__init__(heads)
        self._runner = runner
        self._device = device
        self._transfers = Transfers(device)
        self._threads = threads
        self._gives_types = gives_types

    def run(self, units: Sequence[Unit]) -> list[Computed]:
        """Run one packed batch; return each head's result.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        batch, choice = PackedBatch([unit.payload for unit in units]), Choice.of(units)
        seen = None if batch.key_lengths is None else torch.from_numpy(batch.key_lengths)
        upload, download = self._transfers.upload, self._transfers.download
        with device_errors(), torch.inference_mode():
            inputs = [batch.ids, batch.positions, *([batch.types] if self._gives_types else [])]
            ids, places, *types = upload(inputs)
            layouts = [self._heads[output].lay_out(batch, upload) for output, _ in choice.choices]
            given = Batch(
                ids,
                places,
                torch.from_numpy(batch.cu_seqlens),
                types=types[0] if types else None,
                key_lengths=seen,
                low_rank=None if choice.lora is None else choice.lora.payload,
            )
            states = self._runner.forward(given)
            return [
                (layout, [download(tensor) for tensor in self._heads[output].compute(states, layout, chosen)])
                for (output, chosen), layout in zip(choice.choices, layouts, strict=True)
            ]

    def await_device(self, units: Sequence[Unit], raw: list[Computed]) -> bool:
        """Wait for the results of the heads."""
        for _, copies in raw:
            for copy in copies:
                copy.land()
        return True

    def finish(self, units: Sequence[Unit], raw: list[Computed]) -> Sequence[ItemOutput]:
        """Give each unit its rows; all rows of an output share an array that nothing else holds."""
        sequences, choices = [unit.payload for unit in units], Choice.of(units).choices
        return joined(
            [
                (output, self._heads[output].finish(sequences, layout, [copy.wait() for copy in copies], chosen))
                for (output, chosen), (layout, copies) in zip(choices, raw, strict=True)
            ]
        )

    def load_lora(self, name: str, folder: Path) -> Lora:
        """Read a LoRA adapter for the runner's layers.

        Raises:
            ModelLoadError: It is no plain LoRA, does not fit, or is damaged.
            OutOfDeviceMemory: The device has no room.
        """
        with device_errors():
            return load_lora(name, folder, self._runner, self._device)

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._runner, self._heads
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
