"""Our adapter driven as the engine does, without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sie_gliner.loading import load as load_gliner
from sie_pytorch.forward.specs import RUNNERS

from sie_core.catalog import read_card
from sie_core.contracts import Device, Item, ItemOutput, LoadContext, ModelConfig, Profile, ResolvedModel, Task, Unit

MODEL = "test/gliner"


def load(
    folder: Path,
    precision: str = "float32",
    runtime: dict[str, Any] | None = None,
    device: str = "cpu",
    loadtime: dict[str, Any] | None = None,
    **config: Any,
) -> Any:
    return load_gliner(context(folder, precision, runtime, device, loadtime, **config))


def context(
    folder: Path,
    precision: str = "float32",
    runtime: dict[str, Any] | None = None,
    device: str = "cpu",
    loadtime: dict[str, Any] | None = None,
    **config: Any,
) -> LoadContext:
    profile = Profile("default", runtime=runtime or {}, loadtime=loadtime or {})
    model = ResolvedModel(MODEL, ModelConfig(MODEL, weights_path=str(folder), **config), profile)
    return LoadContext(model, Device(device), precision, weights=folder, card=read_card(folder), runners=RUNNERS)


def asking(labels: Sequence[str], **fields: Any) -> Task:
    truncate = fields.pop("truncate", None)
    return Task("extract", labels=tuple(labels), truncate=truncate, options=fields)


def answer(adapter: Any, units: Sequence[Unit]) -> list[ItemOutput]:
    """Run all units in one batch; one output an item."""
    outputs = adapter.finish(units, adapter.run(units))
    items: dict[int, list[tuple[Unit, ItemOutput]]] = {}
    for unit, output in zip(units, outputs, strict=True):
        items.setdefault(unit.item, []).append((unit, output))
    return [pairs[0][1] if len(pairs) == 1 else adapter.combine(*zip(*pairs, strict=True)) for pairs in items.values()]


def extract(adapter: Any, texts: Sequence[str], task: Task) -> list[ItemOutput]:
    return answer(adapter, list(adapter.prepare([Item(text=text) for text in texts], task)))


def spans(entities: Any) -> list[tuple[int, int, str, str]]:
    """Name what was found, of our entities or of gliner's, whatever their order."""
    if entities and isinstance(entities[0], dict):
        return sorted((each["start"], each["end"], each["label"], each["text"]) for each in entities)
    return sorted((each.start, each.end, each.label, each.text) for each in entities)
