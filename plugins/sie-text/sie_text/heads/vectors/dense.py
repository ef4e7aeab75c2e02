"""One vector a text: a pooling of its states and the layers after it, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from sie_core.contracts import InvalidInput, ItemOutput, Task
from sie_text.heads.pooling import pool
from sie_text.heads.protocol import Head, Output
from sie_text.heads.spans import Spans, Upload, find_spans
from sie_text.heads.vectors.steps import Steps
from sie_text.options import POOLING_NAMES
from sie_text.recipe import PoolingMode, PoolingSettings
from sie_text.sequences import PackedBatch, TokenSequence


class DenseChoice(NamedTuple):
    """The choices of a request."""

    modes: tuple[PoolingMode, ...]
    normalize: bool | None = None
    """Whether vectors are normalised; None follows the weights' files."""


class DenseHead(Head):
    """Pools, then applies the layers in their order."""

    output: Output = "dense"

    def __init__(self, pooling: PoolingSettings, steps: Steps, hidden_size: int) -> None:
        """Keep the parts; `steps` take the pooling of states of `hidden_size`."""
        self._hidden_size = hidden_size
        self._modes = pooling.modes
        self._steps = steps
        self.dims = steps.dims
        self.memory_bytes = steps.memory_bytes

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

    def compute(self, states: Any, layout: Spans, choice: DenseChoice) -> Sequence[Any]:
        """Turn flat states `[total_tokens, hidden]` into float32 embeddings `[sequences, dims]`.

        Pooling by more or fewer modes than the files' gives more or fewer dimensions, if no later layer has a fixed
        size.
        """
        return (self._steps(pool(states, layout, choice.modes), choice.normalize),)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Spans, arrays: Sequence[NDArray[Any]], choice: DenseChoice
    ) -> list[ItemOutput]:
        """Give each text its row; all rows share an array that nothing else holds."""
        unit_length = self._steps.gives_unit_length(choice.normalize)
        return [ItemOutput(dense=row, normalized=unit_length) for row in arrays[0]]
