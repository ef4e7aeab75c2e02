"""The interface of a head: the part of a model after its transformer, for one kind of output.

It names no architecture and no library: states are arrays or tensors of whichever library computes them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from sie_core.contracts import ItemOutput, ModelCard, OutputType, Task
from sie_text.heads.spans import Index, Upload
from sie_text.sequences import PackedBatch, TokenSequence
from sie_text.tokenizer import TextTokenizer

Output = OutputType | Literal["classifications", "entities", "score"]
"""The field of an `ItemOutput` that a head fills: vectors for `encode`, classifications or entities for `extract`."""


@dataclass(frozen=True)
class HeadContext:
    """The inputs for making a head."""

    card: ModelCard
    """The facts of the checkpoint; its files are in `card.path`."""
    tokenizer: TextTokenizer
    """Says which tokens count."""
    hidden_size: int
    """Size of the states."""


class Head(Protocol):
    """Makes one kind of output of the states of a packed batch. A head of your own inherits from it.

    On a device, `lay_out` and `compute` run on its thread, one batch at a time, and `finish` on CPU threads, several at
    once. A head in NumPy does all of it where `apply` is called.
    """

    output: Output
    """The output that it makes."""
    dims: int
    """Dimensions of a vector; of a sparse one, the entries of its vocabulary; of classes and entities, the labels."""
    memory_bytes: int
    """Bytes of its weights, where it computes."""
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
        """Copy a batch's data for `compute` to where the states are, before they are computed."""

    @abstractmethod
    def compute(self, states: Any, layout: Any, choice: Any) -> Sequence[Any]:
        """Turn flat states into arrays, or into tensors on their device without a wait for it.

        Args:
            states: `[total_tokens, hidden]`, in the transformer's precision.
            layout: The result of `lay_out` for the batch.
            choice: The result of `choose`; the same for the whole batch.
        """

    @abstractmethod
    def finish(
        self, sequences: Sequence[TokenSequence], layout: Any, arrays: Sequence[NDArray[Any]], choice: Any
    ) -> Sequence[ItemOutput]:
        """Hand each sequence its part of the results of `compute`, which have reached the host as arrays."""

    def apply(self, states: NDArray[Any], batch: PackedBatch, choice: Any = None) -> Sequence[ItemOutput]:
        """Make the output of each sequence on the host.

        Args:
            states: `[total_tokens, hidden]`, one a token of the batch, in its order; any floating point type.
            batch: The sequences.
            choice: The result of `choose`.
        """
        layout = self.lay_out(batch, keep)
        return self.finish(batch.sequences, layout, self.compute(states, layout, choice), choice)


def keep(arrays: Sequence[Index]) -> Sequence[Index]:
    """Leave arrays where they are: the `Upload` of a head in NumPy."""
    return arrays
