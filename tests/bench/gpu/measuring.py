"""Everything that is measured of one shape."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from sie_flash.plugin import sie_runners as kernel_runners
from sie_pytorch.forward.specs import RUNNERS
from sie_text.architectures import find_architecture

from sie_core.catalog import read_card
from sie_core.contracts import Device
from tests.bench.gpu import passes, whole
from tests.bench.gpu.loads import LENGTHS, Load
from tests.bench.gpu.shapes import Shape, write_model
from tests.bench.gpu.timing import middle, seconds

ENGINE = "SIE, whole engine"
LIBRARY = "sentence-transformers"
PADDED = "transformers, padded, SDPA"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure on what."""

    device: Device
    precision: str
    loads: tuple[Load, ...]
    repeats: int

    @property
    def place(self) -> torch.device:
        """The device as PyTorch names it."""
        return torch.device(str(self.device))

    @property
    def dtype(self) -> torch.dtype:
        """The precision as PyTorch names it."""
        dtype: torch.dtype = getattr(torch, self.precision)
        return dtype


@dataclass(slots=True)
class Found:
    """Tokens a second by what computed them and by kind of text, and the rest there is to know of a shape."""

    shape: str
    tokens_s: dict[str, dict[str, float]] = field(default_factory=dict)
    alone_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    """Milliseconds of one text's forward pass, waited for."""
    flops_a_token: int = 0
    """Of its matrix products."""
    served_by: str = ""
    """The runner of the whole engine."""
    refused: list[str] = field(default_factory=list)
    """Why a registered runner does not serve the shape."""

    @property
    def runners(self) -> list[str]:
        """The packed runners measured, best first."""
        return [name for name in self.tokens_s if name not in (ENGINE, LIBRARY, PADDED)]


def measure(shape: Shape, plan: Plan, scratch: Path) -> Found:
    """Write the model, then time every way to run it over every load."""
    *_, found = measure_passes(shape, plan, scratch)
    folder = scratch / "model"
    _time_passes(found, PADDED, passes.padded_pass(folder, plan.device, plan.dtype), _ids(folder, plan), plan)
    _free()
    _time_whole(found, folder, _ids(folder, plan), plan, scratch)
    return found


def measure_passes(shape: Shape, plan: Plan, scratch: Path) -> Iterator[Found]:
    """Write the model to the folder `model` of `scratch`, then time each runner's forward passes over every load.

    What is found so far comes after each runner, the same object each time.
    """
    folder = write_model(shape, scratch / "model", plan.dtype)
    found = Found(shape.name, flops_a_token=passes.product_flops(folder))
    model_type = read_card(folder).config["model_type"]
    record = find_architecture(model_type)
    needs = None if record is None or record.layers is None else record.layers.needs
    ids = _ids(folder, plan)
    for spec in sorted([*kernel_runners(), *RUNNERS], key=lambda spec: -spec.priority):
        if spec.serves(model_type, plan.device.kind, needs=needs) and spec.name != "padded":
            info, prepare = passes.packed_pass(folder, plan.device, plan.precision, [spec])
            if info.name == spec.name:
                _time_passes(found, info.name, prepare, ids, plan)
            else:
                found.refused.append(info.reason)
            del prepare
            _free()
            yield found


def _ids(folder: Path, plan: Plan) -> dict[str, list[list[int]]]:
    return {load.kind: passes.tokenize(folder, load.texts) for load in plan.loads}


def _time_passes(found: Found, name: str, prepare: passes.Pass, ids: dict[str, list[list[int]]], plan: Plan) -> None:
    for kind, rows in ids.items():
        taken = seconds(prepare(passes.cut(rows)), plan.place, plan.repeats)
        found.tokens_s.setdefault(name, {})[kind] = _count(rows) / middle(taken)
        if kind in LENGTHS:
            alone = seconds(prepare([rows[:1]]), plan.place, 10 * plan.repeats)
            found.alone_ms.setdefault(name, {})[kind] = 1000 * middle(alone)


def _time_whole(found: Found, folder: Path, ids: dict[str, list[list[int]]], plan: Plan, scratch: Path) -> None:
    texts = {load.kind: load.texts for load in plan.loads}
    arguments = (folder, str(plan.device), plan.precision, texts, plan.repeats)
    library = whole.sentence_transformers_seconds(*arguments)
    _free()
    engine, found.served_by = asyncio.run(whole.engine_seconds(*arguments, scratch))
    for name, taken in ((LIBRARY, library), (ENGINE, engine)):
        found.tokens_s[name] = {kind: _count(ids[kind]) / middle(times) for kind, times in taken.items()}
    _free()


def _count(rows: list[list[int]]) -> int:
    return sum(len(row) for row in rows)


def _free() -> None:
    """Give the memory of the model before back, so that each has the device to itself."""
    gc.collect()
    torch.cuda.empty_cache()
