"""The family `pytorch`: text encoders with any head, packed where their architecture allows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sie_core.contracts import (
    Adapter,
    Item,
    ItemOutput,
    LoadContext,
    Lora,
    ModelLoadError,
    OutputType,
    Task,
    Token,
    Unit,
    device_errors,
)
from sie_pytorch.claims import is_dense
from sie_pytorch.facts import needed_card
from sie_pytorch.heads import Head, PackedRows
from sie_pytorch.loading import load_text_encoder
from sie_pytorch.lora import load_lora
from sie_pytorch.options import refuse_foreign
from sie_pytorch.preparation import Preparation
from sie_pytorch.recipe import NotUnderstoodError
from sie_pytorch.recipes.router import is_sparse_router
from sie_pytorch.showing import show_tokens, write_texts
from sie_pytorch.transfers import HostCopy, Transfers

if TYPE_CHECKING:
    from sie_pytorch.runners import BuiltRunner

Computed = tuple[Any, list[HostCopy]]
"""What a head laid out of a batch, and its tensors on their way to the host."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The inference key."""

    told: tuple[tuple[OutputType, Hashable], ...]
    """The outputs asked for, and what each head was told."""
    lora: Lora | None = None


class TextEncoder(Adapter):
    """A transformer text encoder with its heads; one forward pass serves all that a request asks of them."""

    def __init__(
        self,
        preparation: Preparation,
        runner: BuiltRunner,
        heads: Mapping[OutputType, Head],
        device: torch.device,
        threads: int,
        *,
        gives_types: bool = False,
    ) -> None:
        """Keep the parts.

        Args:
            preparation: From items to rows of token ids.
            runner: From ids to states.
            heads: From states to vectors, by output.
            device: Where runner and heads are.
            threads: CPU threads PyTorch may use.
            gives_types: Whether the token type 0 goes with every token.
        """
        self._preparation = preparation
        self._runner = runner
        self._heads = heads
        self._device = device
        self._transfers = Transfers(device)
        self._threads = threads
        self._gives_types = gives_types

    @classmethod
    def load(cls, context: LoadContext) -> Adapter:
        """Load the model; one that only sentence-transformers understands is handed to its fallback.

        Raises:
            ModelLoadError: With the failure's class.
            OutOfDeviceMemory: The device has no room.
        """
        try:
            if is_sparse_router(needed_card(context)):
                # Imported only where it serves, like the fallback below.
                from sie_pytorch.routed import load_routed

                return load_routed(context, lambda part: load_text_encoder(cls, part))
            return load_text_encoder(cls, context)
        except NotUnderstoodError as reason:
            if not is_dense(needed_card(context)):
                raise ModelLoadError("CONFIG", f"{context.model.id} cannot be served: {reason}") from reason
            # Imported only where it serves: the library takes seconds to import.
            from sie_pytorch.fallback import SentenceTransformersEncoder

            try:
                return SentenceTransformersEncoder.load_because(context, str(reason))
            except ModelLoadError as error:
                why = f"The packed text encoder does not serve {context.model.id}: {str(reason).rstrip('.')}."
                raise ModelLoadError(error.failure, f"{why} And {error}") from reason

    def prepare(self, items: Sequence[Item], task: Task) -> Sequence[Unit]:
        """Tokenise; one unit an item, its cost its tokens.

        Raises:
            InvalidInput: An item or an option is wrong.
        """
        choice = self._choose(task)
        rows = self._preparation.rows(items, task)
        return [
            Unit(index, len(row.ids), choice, row, tokens=len(row.ids) - row.filled, truncated=row.truncated)
            for index, row in enumerate(rows)
        ]

    def run(self, units: Sequence[Unit]) -> list[Computed]:
        """Run one packed batch; give what each head made of it.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        batch = PackedRows.of([unit.payload for unit in units])
        choice, key_lengths = _choice(units), batch.key_lengths
        seen = None if key_lengths is None else torch.from_numpy(key_lengths)
        upload, download = self._transfers.upload, self._transfers.download
        with device_errors(), torch.inference_mode():
            ids, places = upload([batch.ids, batch.positions])
            layouts = [self._heads[output].lay_out(batch, upload) for output, _ in choice.told]
            low_rank = None if choice.lora is None else choice.lora.payload
            types = torch.zeros_like(ids) if self._gives_types else None
            states = self._runner.forward(ids, places, types, torch.from_numpy(batch.cu_seqlens), low_rank, seen)
            return [
                (layout, [download(tensor) for tensor in self._heads[output].compute(states, layout, told)])
                for (output, told), layout in zip(choice.told, layouts, strict=True)
            ]

    def await_device(self, units: Sequence[Unit], raw: list[Computed]) -> bool:
        """Wait for what the heads made."""
        for _, copies in raw:
            for copy in copies:
                copy.land()
        return True

    def finish(self, units: Sequence[Unit], raw: list[Computed]) -> Sequence[ItemOutput]:
        """Hand each unit its rows; all rows of an output lie in arrays that nothing else holds."""
        rows = [unit.payload for unit in units]
        outputs = [ItemOutput() for _ in units]
        for (output, told), (layout, copies) in zip(_choice(units).told, raw, strict=True):
            made = self._heads[output].finish(rows, layout, [copy.wait() for copy in copies], told)
            for whole, part in zip(outputs, made, strict=True):
                _join(whole, part, output)
        return outputs

    def load_lora(self, name: str, folder: Path) -> Lora:
        """Read a LoRA adapter for the runner's layers.

        Raises:
            ModelLoadError: It is no plain LoRA, does not fit, or is damaged.
            OutOfDeviceMemory: The device has no room.
        """
        with device_errors():
            return load_lora(name, folder, self._runner, self._device)

    def tokenize(self, texts: Sequence[str], *, special: bool, most: int | None = None) -> Sequence[Sequence[Token]]:
        """List the tokens of texts.

        Raises:
            InvalidInput: A text is not Unicode.
        """
        return show_tokens(self._preparation.tokenizer.core, texts, special=special, most=most)

    def decode(self, ids: Sequence[Sequence[int]], *, special: bool) -> Sequence[str]:
        """Write the texts of token ids.

        Raises:
            InvalidInput: The tokenizer has no such token.
        """
        return write_texts(self._preparation.tokenizer.core, ids, special=special)

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._runner, self._heads
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _choose(self, task: Task) -> Choice:
        refuse_foreign(task, self._heads)
        told = tuple((output, self._heads[output].choose(task)) for output in task.output_types)
        return Choice(told, lora=task.lora)


def _choice(units: Sequence[Unit]) -> Choice:
    choice = units[0].key
    assert isinstance(choice, Choice)
    return choice


def _join(whole: ItemOutput, part: ItemOutput, output: OutputType) -> None:
    """Move what one head made of an item to what the others made of it."""
    setattr(whole, output, getattr(part, output))
    whole.normalized = whole.normalized or part.normalized
