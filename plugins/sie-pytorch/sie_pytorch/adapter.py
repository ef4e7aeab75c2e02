"""The family `pytorch`: text encoders with any head, packed where their architecture allows.

It joins tokenisation, a runner and heads, and knows none of them from inside.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from sie_core.contracts import (
    Adapter,
    InvalidInput,
    Item,
    ItemOutput,
    LoadContext,
    ModelFacts,
    ModelLoadError,
    OutputType,
    Task,
    Unit,
)
from sie_pytorch.claims import is_dense
from sie_pytorch.device import memory_errors
from sie_pytorch.facts import matryoshka_dims, needed_card, sequence_lengths
from sie_pytorch.heads import Head, PackedRows, build_heads
from sie_pytorch.options import READ_BY
from sie_pytorch.preparation import Preparation
from sie_pytorch.prompts import Prompts
from sie_pytorch.recipe import NotUnderstoodError, read_recipe
from sie_pytorch.running import runner_for
from sie_pytorch.stages import Stages, disable_progress_bars
from sie_pytorch.tokenizer import load_tokenizer
from sie_pytorch.transfers import HostCopy, Transfers
from sie_pytorch.warming import warm_up
from sie_pytorch.weights import require_weights

if TYPE_CHECKING:
    from sie_pytorch.runners import BuiltRunner


Choice = tuple[tuple[OutputType, Hashable], ...]
"""The inference key: the outputs asked for, and what each head was told."""


class TextEncoder(Adapter):
    """A transformer text encoder with its heads; one forward pass serves all that a request asks of them."""

    def __init__(
        self,
        preparation: Preparation,
        runner: BuiltRunner,
        heads: Mapping[OutputType, Head],
        device: torch.device,
        threads: int,
    ) -> None:
        self._preparation = preparation
        self._runner = runner
        self._heads = heads
        self._device = device
        self._transfers = Transfers(device)
        self._threads = threads

    @classmethod
    def load(cls, context: LoadContext) -> Adapter:
        """Load the model; one that only sentence-transformers understands is handed to its fallback.

        Raises:
            ModelLoadError: With the failure's class.
            OutOfDeviceMemory: The device has no room.
        """
        try:
            return _load_packed(cls, context)
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
            Unit(item=index, cost=len(row.ids), key=choice, payload=row, tokens=len(row.ids), truncated=row.truncated)
            for index, row in enumerate(rows)
        ]

    def run(self, units: Sequence[Unit]) -> list[list[HostCopy]]:
        """Run one packed batch; give the tensors of each output asked for.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        batch = PackedRows.of([unit.payload for unit in units])
        choice: Choice = units[0].key  # type: ignore[assignment]
        upload, download = self._transfers.upload, self._transfers.download
        with memory_errors(), torch.inference_mode():
            ids, places = upload([batch.ids, batch.positions])
            layouts = [self._heads[output].lay_out(batch, upload) for output, _ in choice]
            states = self._runner.forward(ids, places, None, torch.from_numpy(batch.cu_seqlens))
            return [
                [download(tensor) for tensor in self._heads[output].compute(states, layout, told)]
                for (output, told), layout in zip(choice, layouts, strict=True)
            ]

    def finish(self, units: Sequence[Unit], raw: list[list[HostCopy]]) -> Sequence[ItemOutput]:
        """Hand each unit its rows; all rows of an output lie in arrays that nothing else holds."""
        rows = [unit.payload for unit in units]
        choice: Choice = units[0].key  # type: ignore[assignment]
        outputs = [ItemOutput() for _ in units]
        for (output, told), copies in zip(choice, raw, strict=True):
            made = self._heads[output].finish(rows, [copy.wait() for copy in copies], told)
            for whole, part in zip(outputs, made, strict=True):
                _join(whole, part, output)
        return outputs

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._runner, self._heads
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _choose(self, task: Task) -> Choice:
        for option, outputs in READ_BY.items():
            if task.options.get(option) is not None and outputs.isdisjoint(self._heads):
                raise InvalidInput(
                    f"options.{option} is of {' and '.join(sorted(outputs))} vectors, and the model gives "
                    f"{', '.join(self._heads)}; leave the option out.",
                    param=f"options.{option}",
                )
        return tuple((output, self._heads[output].choose(task)) for output in task.output_types)


def _join(whole: ItemOutput, part: ItemOutput, output: OutputType) -> None:
    """Move what one head made of an item to what the others made of it."""
    setattr(whole, output, getattr(part, output))
    whole.normalized = whole.normalized or part.normalized


def _load_packed(family: type[TextEncoder], context: LoadContext) -> TextEncoder:
    """Load tokenizer, runner and head; raise `NotUnderstoodError` where one of them cannot serve the model."""
    card, config = needed_card(context), context.model.config
    require_weights(card)
    recipe = read_recipe(card)
    prompts = Prompts.of(card, dict(recipe.prompts))
    stages = Stages(context)
    disable_progress_bars()
    tokenizer = load_tokenizer(card, recipe, trust_remote_code=config.trust_remote_code)
    stages.done("tokenizer")
    runner = runner_for(context, card)
    stages.done("weights")
    device = torch.device(str(context.device))
    with memory_errors():
        heads = build_heads(recipe, card.path, runner.info.hidden_size, runner.info.precision, device)
    lengths, length_note = sequence_lengths(config, card, recipe, tokenizer, runner.info.max_sequence_length)
    preparation = Preparation(
        context.model.id,
        tokenizer,
        prompts,
        lengths,
        pools_prompt=recipe.pooling is None or recipe.pooling.include_prompt,
        takes_ids=config.accept_token_ids,
    )
    encoder = family(preparation, runner, heads, device, context.threads)
    dims = warm_up(encoder, context, tuple(heads))
    stages.done("warm")
    notes = {"prompts": prompts.note, "max_sequence_length": length_note, **dict(recipe.notes)}
    encoder.facts = ModelFacts(
        outputs=tuple(heads),
        dims=dims,
        matryoshka_dims=matryoshka_dims(config, card, dims["dense"]) if "dense" in dims else (),
        max_sequence_length=lengths.default,
        memory_bytes=runner.info.memory_bytes + sum(head.memory_bytes for head in heads.values()),
        precision=runner.info.precision,
        notes={**runner.info.notes, **{name: note for name, note in notes.items() if note}},
    )
    return encoder
