"""Adapters with heads: one forward pass serves all that a request asks of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from sie_core.contracts import Item, ItemOutput, Lora, Task, Unit
from sie_text.adapter import TextAdapter
from sie_text.encode import TextPreparation
from sie_text.heads.protocol import Head, Output
from sie_text.options import refuse_foreign
from sie_text.sequences import PackedBatch

EXTRACTED: tuple[Output, ...] = ("classifications",)
"""Outputs of `extract`."""


class Choice(NamedTuple):
    """The inference key: a tuple, as queues and batches look it up a dozen times for each request."""

    choices: tuple[tuple[Output, Hashable], ...]
    """The requested outputs, with each head's choice."""
    lora: Lora | None = None

    @classmethod
    def of(cls, units: Sequence[Unit]) -> Choice:
        """Return the key of a batch."""
        choice = units[0].key
        assert isinstance(choice, Choice)
        return choice


class HeadAdapter(TextAdapter):
    """Shared by adapters with heads. The payload of a unit is its `TokenSequence`, the key a `Choice`."""

    def __init__(self, heads: Iterable[Head]) -> None:
        """Keep the heads, each of another kind.

        Raises:
            ValueError: Two make the same output.
        """
        self._heads: dict[Output, Head] = {}
        for head in heads:
            if self._heads.setdefault(head.output, head) is not head:
                raise ValueError(f"two heads make {head.output}")

    def _chosen(self, task: Task, outputs: Iterable[Output]) -> Choice:
        """Make the inference key of a task that asks for `outputs`.

        Raises:
            InvalidInput: An option does not suit a head.
        """
        return Choice(tuple((output, self._heads[output].choose(task)) for output in outputs), lora=task.lora)

    def _text_units(self, preparation: TextPreparation, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit an item, its cost its tokens.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        refuse_foreign(task, self._heads)
        choice = self._chosen(task, task.output_types if task.operation == "encode" else EXTRACTED)
        for index, each in enumerate(preparation.sequences(items, task)):
            yield each.unit(index, choice)


class TextEncoder(HeadAdapter):
    """An encoder of single texts whose heads are in NumPy. A family adds `states`, the forward pass."""

    def __init__(self, preparation: TextPreparation, heads: Iterable[Head]) -> None:
        """Keep the parts; `preparation` makes token sequences of items.

        Raises:
            ValueError: Two heads make the same output.
        """
        super().__init__(heads)
        self._preparation = preparation
        self.tokenizer = preparation.tokenizer
        self.prompts = preparation.prompts

    @abstractmethod
    def states(self, batch: PackedBatch) -> NDArray[Any]:
        """Compute the last hidden states `[total_tokens, hidden]` of a batch, one a token, in any floating point type.

        It runs on the device's thread, one batch at a time. `batch.key_lengths` says what other tokens attend to.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit an item, its cost its tokens.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        return self._text_units(self._preparation, items, task)

    def run(self, units: Sequence[Unit]) -> tuple[PackedBatch, NDArray[Any]]:
        """Compute the states of one batch."""
        batch = PackedBatch([unit.payload for unit in units])
        return batch, self.states(batch)

    def await_device(self, units: Sequence[Unit], raw: Any) -> bool:
        """Wait for nothing: `states` returns arrays."""
        return True

    def finish(self, units: Sequence[Unit], raw: tuple[PackedBatch, NDArray[Any]]) -> Sequence[ItemOutput]:
        """Apply the heads, on CPU threads; all rows of an output share an array that nothing else holds."""
        batch, states = raw
        choices = Choice.of(units).choices
        return joined([(output, self._heads[output].apply(states, batch, chosen)) for output, chosen in choices])


def joined(made: Sequence[tuple[Output, Sequence[ItemOutput]]]) -> Sequence[ItemOutput]:
    """Join the outputs of several heads, item by item, into those of the first."""
    (_, whole), *others = made
    for output, parts in others:
        for one, part in zip(whole, parts, strict=True):
            setattr(one, output, getattr(part, output))
            one.normalized = one.normalized or part.normalized
    return whole
