"""One vector a text: a pooling of its states and the layers after it, on the device, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sie_text.options import POOLING_NAMES
from sie_text.recipe import HeadSettings, PoolingMode, PoolingSettings
from sie_text.sequences import PackedBatch, TokenSequence

from sie_core.contracts import InvalidInput, ItemOutput, Task
from sie_pytorch.heads.pooling import Spans, Upload, find_spans, pool
from sie_pytorch.heads.protocol import Head, Output
from sie_pytorch.heads.vectors.steps import Steps


class DenseChoice(NamedTuple):
    """The choices of a request."""

    modes: tuple[PoolingMode, ...]
    normalize: bool | None = None
    """Whether vectors are normalised; None follows the weights' files."""


class DenseHead(Head):
    """Pools, then applies the layers in their order."""

    output: Output = "dense"

    def __init__(
        self,
        pooling: PoolingSettings,
        steps: Sequence[HeadSettings],
        truncate_dim: int | None,
        hidden_size: int,
        device: torch.device,
    ) -> None:
        """Load the layers onto `device`.

        Raises:
            ModelLoadError: `CORRUPT`: weights are missing or do not fit; `CONFIG`: sizes do not follow one another.
        """
        self._hidden_size = hidden_size
        self._modes = pooling.modes
        self._steps = Steps(steps, len(pooling.modes) * hidden_size, device)
        self.dims = min(self._steps.dims, truncate_dim or self._steps.dims)
        self.memory_bytes = self._steps.memory_bytes

    def choose(self, task: Task) -> DenseChoice:
        """Read the options `pooling` and `normalize`.

        Raises:
            InvalidInput: The layers do not accept the pooling's output size.
        """
        pooling, normalize = task.options.get("pooling"), task.options.get("normalize")
        modes = self._modes if pooling is None else (POOLING_NAMES[pooling],)
        if self._steps.takes not in (None, len(modes) * self._hidden_size):
            raise InvalidInput(
                f"options.pooling is {pooling!r}, and the model's next module takes vectors of "
                f"{' + '.join(self._modes)} pooling alone; leave the option out.",
                param="options.pooling",
            )
        return DenseChoice(modes, normalize)

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Spans:
        """Find the states each text pools over."""
        return find_spans(batch.cu_seqlens, batch.excluded, upload)

    def compute(self, states: torch.Tensor, layout: Spans, choice: DenseChoice) -> tuple[torch.Tensor]:
        """Turn flat states `[total_tokens, hidden]` into float32 embeddings `[sequences, dims]`.

        Pooling by more or fewer modes than the files' gives more or fewer dimensions, if no later layer has a fixed
        size.
        """
        skips_last = self._steps.ends_in_unit_length and choice.normalize is False
        vectors = self._steps(pool(states, layout, choice.modes), without_last=skips_last)
        if self.dims < self._steps.dims:
            vectors = vectors[:, : self.dims]
        return (F.normalize(vectors, dim=1) if choice.normalize else vectors,)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Spans, arrays: Sequence[NDArray[Any]], choice: DenseChoice
    ) -> list[ItemOutput]:
        """Give each text its row; all rows share an array that nothing else holds."""
        unit_length = self._unit_length(choice)
        return [ItemOutput(dense=row, normalized=unit_length) for row in arrays[0]]

    def _unit_length(self, choice: DenseChoice) -> bool:
        """Whether vectors have unit length; cut to a size that the files state, they keep only part of it."""
        if choice.normalize is not None:
            return choice.normalize
        return self._steps.ends_in_unit_length and self.dims == self._steps.dims
