"""The family `cpu-pairs`: models that read two texts at once, for `score` and for `extract` by labels."""

from __future__ import annotations

from sie_text.heads import HeadContext, PairHead, PairParts, PairUnits, build_pair_head
from sie_text.loading import PROBE_TEXTS, Stages
from sie_text.pairs import PairPreparation

from sie_core.contracts import Adapter, Item, LoadContext
from sie_cpu.families.claims import FEATURES
from sie_cpu.families.model import CpuModel, notes_of_code, served
from sie_cpu.forward.running import CpuRunner, Judge, build_runner


class PairModel(PairUnits, CpuModel):
    """A cross-encoder, a reranker made of a language model, or an entailment classifier."""

    def __init__(
        self, model: str, preparation: PairPreparation, head: PairHead, runner: CpuRunner, *, gives_types: bool
    ) -> None:
        super().__init__(runner, [head], gives_types=gives_types)
        self._model, self._pairs, self._head = model, preparation, head
        self.tokenizer = preparation.tokenizer


def load(context: LoadContext) -> Adapter:
    """Load a model of pairs.

    Raises:
        FamilyUnfitError: Its files ask for something that the kernels do not do.
        ModelLoadError: With the failure's class.
        OutOfDeviceMemory: The machine has no room.
    """
    return served(context, _load)


def _load(context: LoadContext) -> Adapter:
    stages = Stages(context)
    parts = PairParts(context)
    notes = notes_of_code(context, parts.card, *parts.auto_classes)
    stages.done("tokenizer")

    def head_for(runner: CpuRunner) -> PairHead:
        return build_pair_head(parts.recipe, HeadContext(parts.card, parts.tokenizer, runner.hidden_size))

    def judge(runner: CpuRunner) -> Judge:
        texts = [Item(text=text) for text in PROBE_TEXTS[1:]]
        return Judge(head_for(runner), parts.probes(texts, runner.limit), parts.probe_task, parts.gives_types)

    runner = build_runner(context, parts.card, FEATURES, judge=judge)
    head = head_for(runner)
    stages.done("weights")
    preparation = parts.preparation(runner.limit)
    model = PairModel(context.model.id, preparation, head, runner, gives_types=parts.gives_types)
    told = {**runner.notes, **notes}
    model.facts = parts.facts(model, head, told, memory_bytes=runner.memory_bytes, precision=runner.precision)
    stages.done("warm")
    return model
