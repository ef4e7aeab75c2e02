"""The family `cpu-tokens`: entities of texts by the labels of their tokens."""

from __future__ import annotations

from sie_text.entities import EntityPreparation
from sie_text.heads import EntityHead, EntityParts, EntityUnits, HeadContext, build_entity_head
from sie_text.loading import PROBE_TEXTS, Stages

from sie_core.contracts import Adapter, Item, LoadContext
from sie_cpu.families.claims import FEATURES
from sie_cpu.families.model import CpuModel, notes_of_code, served
from sie_cpu.forward.running import CpuRunner, Judge, build_runner


class TokenClassifier(EntityUnits, CpuModel):
    """A transformer that labels tokens."""

    def __init__(self, preparation: EntityPreparation, head: EntityHead, runner: CpuRunner) -> None:
        super().__init__(runner, [head])
        self._windows, self._head = preparation, head
        self.tokenizer = preparation.tokenizer


def load(context: LoadContext) -> Adapter:
    """Load a token classifier.

    Raises:
        FamilyUnfitError: Its files ask for something that the kernels do not do.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The machine has no room.
    """
    return served(context, _load)


def _load(context: LoadContext) -> Adapter:
    stages = Stages(context)
    parts = EntityParts(context)
    notes = notes_of_code(context, parts.card, "AutoModelForTokenClassification")
    stages.done("tokenizer")

    def head_for(runner: CpuRunner) -> EntityHead:
        return build_entity_head(HeadContext(parts.card, parts.tokenizer, runner.hidden_size), parts.tags)

    def judge(runner: CpuRunner) -> Judge:
        texts = [Item(text=text) for text in PROBE_TEXTS[1:]]
        return Judge(head_for(runner), parts.probes(texts, runner.limit), parts.task)

    runner = build_runner(context, parts.card, FEATURES, judge=judge)
    head = head_for(runner)
    stages.done("weights")
    model = TokenClassifier(parts.preparation(runner.limit), head, runner)
    model.facts = parts.facts(
        model,
        head,
        {**runner.notes, **notes},
        memory_bytes=runner.memory_bytes,
        precision=runner.precision,
        takes_lora=True,
    )
    stages.done("warm")
    return model
