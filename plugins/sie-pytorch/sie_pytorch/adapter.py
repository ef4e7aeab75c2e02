"""The family `pytorch`: dense text encoders, packed where their architecture allows.

It joins tokenisation, a runner and a head, and knows none of them from inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from sie_core.contracts import (
    Adapter,
    InvalidInput,
    Item,
    ItemOutput,
    LoadContext,
    ModelCard,
    ModelFacts,
    ModelLoadError,
    Task,
    Unit,
)
from sie_pytorch.device import memory_errors
from sie_pytorch.facts import matryoshka_dims, needed_card, sequence_lengths
from sie_pytorch.heads import Head, HeadChoice
from sie_pytorch.options import POOLING_NAMES
from sie_pytorch.pooling import find_spans
from sie_pytorch.preparation import Preparation, TokenRow
from sie_pytorch.prompts import Prompts
from sie_pytorch.recipe import NotUnderstoodError, read_recipe
from sie_pytorch.stages import Stages, disable_progress_bars
from sie_pytorch.tokenizer import load_tokenizer
from sie_pytorch.transfers import HostCopy, Transfers
from sie_pytorch.warming import warm_up
from sie_pytorch.weights import require_weights

if TYPE_CHECKING:
    from sie_pytorch.runners import BuiltRunner


class TextEncoder(Adapter):
    """A transformer text encoder with its pooling and head modules."""

    def __init__(
        self,
        preparation: Preparation,
        runner: BuiltRunner,
        head: Head,
        device: torch.device,
        threads: int,
    ) -> None:
        self._preparation = preparation
        self._runner = runner
        self._head = head
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
        choice = self._choose_head(task)
        rows = self._preparation.rows(items, task)
        return [
            Unit(item=index, cost=len(row.ids), key=choice, payload=row, tokens=len(row.ids), truncated=row.truncated)
            for index, row in enumerate(rows)
        ]

    def run(self, units: Sequence[Unit]) -> HostCopy:
        """Run one packed batch.

        Raises:
            OutOfDeviceMemory: The device has no room for it.
        """
        if torch.get_num_threads() != self._threads:
            # A thread that used PyTorch before the load keeps the number it had then.
            torch.set_num_threads(self._threads)
        rows: list[TokenRow] = [unit.payload for unit in units]
        choice = units[0].key
        assert isinstance(choice, HeadChoice)
        lengths = np.array([len(row.ids) for row in rows])
        cu_seqlens = np.concatenate(([0], np.cumsum(lengths)))
        positions = np.arange(cu_seqlens[-1]) - np.repeat(cu_seqlens[:-1], lengths)
        excluded = np.array([row.excluded for row in rows])
        with memory_errors(), torch.inference_mode():
            ids, places = self._transfers.upload([np.concatenate([row.ids for row in rows]), positions])
            spans = find_spans(cu_seqlens, excluded, self._transfers.upload)
            states = self._runner.forward(ids, places, None, torch.from_numpy(cu_seqlens))
            return self._transfers.download(self._head(states, spans, choice))

    def finish(self, units: Sequence[Unit], raw: HostCopy) -> Sequence[ItemOutput]:
        """Hand each unit its row; all rows lie in one array that nothing else holds."""
        choice = units[0].key
        assert isinstance(choice, HeadChoice)
        unit_length = self._head.unit_length(choice)
        return [ItemOutput(dense=row, normalized=unit_length) for row in raw.wait()]

    def unload(self) -> None:
        """Free the weights now, and PyTorch's cache of them."""
        del self._runner, self._head
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _choose_head(self, task: Task) -> HeadChoice:
        pooling, normalize = task.options.get("pooling"), task.options.get("normalize")
        modes = self._head.default.modes if pooling is None else (POOLING_NAMES[pooling],)
        if not self._head.fits(modes):
            raise InvalidInput(
                f"options.pooling is {pooling!r}, and the model's next module takes vectors of "
                f"{' + '.join(self._head.default.modes)} pooling alone; leave the option out.",
                param="options.pooling",
            )
        return HeadChoice(modes, normalize)


def _load_packed(family: type[TextEncoder], context: LoadContext) -> TextEncoder:
    """Load tokenizer, runner and head; raise `NotUnderstoodError` where one of them cannot serve the model."""
    card, config = needed_card(context), context.model.config
    require_weights(card)
    recipe, prompts = read_recipe(card), Prompts.of(card)
    stages = Stages(context)
    disable_progress_bars()
    tokenizer = load_tokenizer(card, recipe, trust_remote_code=config.trust_remote_code)
    stages.done("tokenizer")
    runner = _build_runner(context, card)
    stages.done("weights")
    device = torch.device(str(context.device))
    with memory_errors():
        head = Head(recipe, runner.info.hidden_size, device)
    lengths, length_note = sequence_lengths(config, card, recipe, tokenizer, runner.info.max_sequence_length)
    preparation = Preparation(
        context.model.id,
        tokenizer,
        prompts,
        lengths,
        pools_prompt=recipe.pooling.include_prompt,
        takes_ids=config.accept_token_ids,
    )
    encoder = family(preparation, runner, head, device, context.threads)
    dims = warm_up(encoder, context)
    stages.done("warm")
    notes = {"prompts": prompts.note, "max_sequence_length": length_note}
    encoder.facts = ModelFacts(
        outputs=("dense",),
        dims={"dense": dims},
        matryoshka_dims=matryoshka_dims(config, card, dims),
        max_sequence_length=lengths.default,
        memory_bytes=runner.info.memory_bytes + head.memory_bytes,
        precision=runner.info.precision,
        notes={**runner.info.notes, **{name: note for name, note in notes.items() if note}},
    )
    return encoder


def _build_runner(context: LoadContext, card: ModelCard) -> BuiltRunner:
    # Imports transformers' models, which takes longer than all else here.
    from sie_pytorch.runners import build_runner

    torch.set_num_threads(context.threads)
    try:
        return build_runner(
            card.path,
            card,
            context.device,
            context.precision,
            context.attention_backend,
            context.runners,
            context.threads,
        )
    except ModelLoadError as error:
        if error.failure == "CONFIG" or context.model.config.trust_remote_code:
            raise NotUnderstoodError(str(error)) from error
        raise
