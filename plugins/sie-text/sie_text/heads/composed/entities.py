"""All of a token classifier but its forward pass and its head: tokenizer, labels, windows, units, facts in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sie_core.contracts import Adapter, Item, ItemOutput, LoadContext, ModelFacts, Task, Unit
from sie_text.entities import EntityPreparation, TagSet
from sie_text.heads.composed.adapter import HeadAdapter
from sie_text.heads.logits.entities import EntityHead
from sie_text.labels import Labels
from sie_text.lengths import Lengths, sequence_lengths
from sie_text.loading import needed_card, profile_options, require_weights, run_once
from sie_text.recipe import TransformerSettings
from sie_text.sequences import TokenSequence
from sie_text.tokenizer import load_tokenizer

UNNAMED_LABELS = 2
"""transformers' own number if a config.json names none."""


class EntityUnits(HeadAdapter):
    """Prepares windows of texts and joins their outputs. A family sets the attributes, and adds the forward pass."""

    _windows: EntityPreparation
    _head: EntityHead

    def prepare(self, items: Sequence[Item], task: Task) -> Iterator[Unit]:
        """Tokenise; one unit a window of a text, its cost its tokens.

        Labels, thresholds and strategies go with each unit, so requests share batches whatever they ask for.

        Raises:
            InvalidInput: An item, a label or an option is wrong.
        """
        key = self._chosen(task, [self._head.output])
        for index, windows in enumerate(self._windows.sequences(items, task)):
            for sequence in windows:
                unit = sequence.unit(index, key)
                unit.nbytes += sequence.finish_options.nbytes
                yield unit

    def combine(self, units: Sequence[Unit], outputs: Sequence[ItemOutput]) -> ItemOutput:
        """Read the entities of a text of several windows."""
        if len(outputs) == 1:
            return super().combine(units, outputs)
        return self._head.join([unit.payload.finish_options for unit in units], outputs)


class EntityParts:
    """The parts of a token classifier."""

    def __init__(self, context: LoadContext) -> None:
        """Read the labels, and load the tokenizer.

        Raises:
            ModelLoadError: `CONFIG`: there is no tokenizer.
        """
        self._context = context
        self.card = card = needed_card(context)
        require_weights(card)
        self.tokenizer = load_tokenizer(card, trust_remote_code=context.model.config.trust_remote_code)
        names = card.config.get("id2label")
        count = len(names) if isinstance(names, Mapping) and names else UNNAMED_LABELS
        self.tags = TagSet.of(Labels.of(card, count, None).names)
        self.task = Task("extract", options=profile_options(context))
        """Reads entities as the profile asks."""
        self._lengths: Lengths | None = None
        self._length_note: str | None = None

    def preparation(self, limit: int | None) -> EntityPreparation:
        """Make the preparation of texts, given the tokens that the model's positions allow; None for no limit.

        Raises:
            ModelLoadError: `CONFIG`: the length leaves no room for a text.
        """
        config, settings = self._context.model.config, TransformerSettings()
        self._lengths, self._length_note = sequence_lengths(config, self.card, settings, self.tokenizer, limit)
        return EntityPreparation(self._context.model.id, self.tokenizer, self._lengths, self.tags)

    def probes(self, items: Sequence[Item], limit: int | None) -> Iterator[TokenSequence]:
        """Make the windows of `items`."""
        return (each for windows in self.preparation(limit).sequences(items, self.task) for each in windows)

    def facts(
        self,
        adapter: Adapter,
        head: EntityHead,
        notes: Mapping[str, str],
        *,
        memory_bytes: int,
        precision: str,
        takes_lora: bool,
    ) -> ModelFacts:
        """Run one text through the whole model, as the profile asks, and state its facts.

        Call it after `preparation`.

        Raises:
            ModelLoadError: `CONFIG`: the profile's options cannot be served; names the option.
        """
        run_once(adapter, self._context, self.task)
        length = None if self._lengths is None else self._lengths.default
        window = f"{length} tokens; longer texts are read in windows that overlap"
        own = {"tokenizer": self.tokenizer.note, "max_sequence_length": self._length_note, "window": window}
        return ModelFacts(
            operations=("extract",),
            takes_labels="optional",
            max_sequence_length=length,
            memory_bytes=memory_bytes + head.memory_bytes,
            takes_lora=takes_lora,
            precision=precision,
            notes={**notes, **{name: note for name, note in own.items() if note}, **head.notes},
        )
