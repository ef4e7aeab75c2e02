"""The interface of a head: the part of a model after its transformer, for one kind of output.

It names no architecture.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

import torch
from numpy.typing import NDArray
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.tokenizer import TextTokenizer

from sie_core.contracts import ItemOutput, ModelCard, OutputType, Task
from sie_pytorch.heads.pooling import Upload

Output = OutputType | Literal["classifications", "entities", "score"]
"""The field of an `ItemOutput` that a head fills: vectors for `encode`, classifications or entities for `extract`."""


@dataclass(frozen=True, slots=True)
class HeadContext:
    """The inputs for making a head, available once the runner of its states is."""

    card: ModelCard
    """The facts of the checkpoint; its files are in `card.path`."""
    tokenizer: TextTokenizer
    """Says which tokens count."""
    hidden_size: int
    """Size of the states."""
    precision: str
    """Precision of the transformer: `float32`, `bfloat16` or `float16`. Small heads compute in float32."""
    device: torch.device
    """The device of the states, and of the head's weights."""


class Head(Protocol):
    """Makes one kind of output of the states of a packed batch. A head of your own inherits from it.

    `lay_out` and `compute` run on the device's thread, one batch at a time; the others on CPU threads, several at once.
    """

    output: Output
    """The output that it makes."""
    dims: int
    """Dimensions of a vector; of a sparse one, the entries of its vocabulary; of classes and entities, the labels."""
    memory_bytes: int
    """Bytes of its weights on the device."""
    classes: tuple[str, ...] = ()
    """The names of the labels, in the order of the logits; for `ModelFacts.classes`."""
    notes: Mapping[str, str] = MappingProxyType({})
    """Notes for operators; they join `ModelFacts.notes`."""

    def choose(self, task: Task) -> Hashable:
        """Read the options of a request that change `compute`: its part of the inference key. None: nothing.

        Raises:
            InvalidInput: An option does not suit it.
        """
        return None

    @abstractmethod
    def lay_out(self, batch: PackedBatch, upload: Upload) -> Any:
        """Copy a batch's data for `compute` to the device, before the states are computed."""

    @abstractmethod
    def compute(self, states: torch.Tensor, layout: Any, choice: Any) -> Sequence[torch.Tensor]:
        """Turn flat states into tensors on their device, without a wait for it.

        Args:
            states: `[total_tokens, hidden]`, in the transformer's precision.
            layout: The result of `lay_out` for the batch.
            choice: The result of `choose`; the same for the whole batch.
        """

    @abstractmethod
    def finish(
        self, sequences: Sequence[TokenSequence], layout: Any, arrays: Sequence[NDArray[Any]], choice: Any
    ) -> Sequence[ItemOutput]:
        """Hand each sequence its part of the tensors, which have reached the host as arrays."""


HeadMaker = Callable[[HeadContext], Head]
"""Makes a head: a class that takes a `HeadContext`, or a function.

It raises `ModelLoadError` if weights are missing or do not fit.
"""
