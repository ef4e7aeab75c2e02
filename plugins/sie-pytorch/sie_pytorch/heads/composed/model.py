"""A runner with heads, as an adapter: packed batches of token sequences in, outputs of the heads out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sie_text.heads import Choice, Head, HeadAdapter, joined
from sie_text.sequences import PackedBatch

from sie_core.contracts import ItemOutput, Lora, Unit, device_errors
from sie_pytorch.forward.lora.files import load_lora
from sie_pytorch.forward.protocol import Batch
from sie_pytorch.forward.transfers import Results, Transfers
from sie_pytorch.heads.protocol import LateHead

if TYPE_CHECKING:
    from sie_pytorch.forward import BuiltRunner

Computed = tuple[Any, Results]
"""A head's layout of a batch, and its tensors on their way to the host."""
BYTES_A_TOKEN = 64
"""Bound on the bytes that travel with a token, and with a sequence, in one copy: eight numbers."""


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
        with device_errors(), torch.inference_mode():
            staged = self._transfers.stage(BYTES_A_TOKEN * (len(batch.ids) + len(batch.cu_seqlens)))
            bounds = batch.cu_seqlens.astype(np.int32)
            inputs: list[NDArray[Any]] = [
                batch.ids,
                batch.positions,
                bounds,
                *([batch.types] if self._gives_types else []),
            ]
            ids, places, there, *types = staged.add(inputs)
            layouts = [self._heads[output].lay_out(batch, staged.add) for output, _ in choice.choices]
            staged.send()
            given = Batch(
                ids,
                places,
                torch.from_numpy(batch.cu_seqlens),
                types=types[0] if types else None,
                key_lengths=seen,
                low_rank=None if choice.lora is None else choice.lora.payload,
                bounds=there,
            )
            states = self._runner.forward(given)
            return [
                (layout, self._download(self._heads[output], self._heads[output].compute(states, layout, chosen)))
                for (output, chosen), layout in zip(choice.choices, layouts, strict=True)
            ]

    def _download(self, head: Head, computed: Sequence[torch.Tensor]) -> Results:
        if isinstance(head, LateHead):
            return self._transfers.download_late(partial(head.narrow, computed))
        return self._transfers.download_all(computed)

    def await_device(self, units: Sequence[Unit], raw: list[Computed]) -> bool:
        """Wait for the results of the heads."""
        for _, results in raw:
            results.land()
        return True

    def finish(self, units: Sequence[Unit], raw: list[Computed]) -> Sequence[ItemOutput]:
        """Give each unit its rows; all rows of an output share an array that nothing else holds."""
        sequences, choices = [unit.payload for unit in units], Choice.of(units).choices
        return joined(
            [
                (output, self._heads[output].finish(sequences, layout, results.wait(), chosen))
                for (output, chosen), (layout, results) in zip(choices, raw, strict=True)
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
        """Free the weights now; the engine frees PyTorch's cache of them."""
        del self._runner, self._heads
