"""What the encoder tests share: models in sentence-transformers' layout, and our adapters driven as the engine does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from sie_pytorch import plugin
from sie_pytorch.families.encode.loading import load as load_encoder
from sie_sentence_transformers import plugin as fallback_plugin
from sie_sentence_transformers.fallback.adapter import load as load_fallback

from sie_core.catalog import read_card
from sie_core.catalog.families import Candidate, FamilyChoice
from sie_core.catalog.fetching import FetchedModel
from sie_core.catalog.loading import load_adapter
from sie_core.contracts import (
    Adapter,
    Claim,
    Device,
    Item,
    ItemOutput,
    LoadContext,
    ModelConfig,
    ModelFamily,
    OutputType,
    Profile,
    ResolvedModel,
    SparseVector,
    Task,
    Unit,
)
from sie_core.plugins import PluginSet

LOADS: dict[str, Callable[[LoadContext], Adapter]] = {
    "pytorch": load_encoder,
    "sentence-transformers": load_fallback,
}
MODEL = "test/model"
CPU = Device("cpu")


def write_encoder(base: Path, folder: Path, *modules: Any, length: int | None = None, **arguments: Any) -> None:
    """Save the transformer in `base` and `modules` as sentence-transformers does."""
    transformer = st.Transformer(str(base), max_seq_length=length)
    SentenceTransformer(modules=[transformer, *modules], device="cpu", **arguments).save_pretrained(
        str(folder), create_model_card=False
    )


def save_encoder(base: Path, folder: Path, *modules: Any, **arguments: Any) -> SentenceTransformer:
    """Do what `write_encoder` does, and load the result with sentence-transformers."""
    write_encoder(base, folder, *modules, **arguments)
    return reference(folder)


def reference(folder: Path, **arguments: Any) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True, **arguments)


def families() -> dict[str, ModelFamily]:
    return {family.id: family for family in plugin.sie_model_families()}


def context(
    folder: Path,
    *,
    precision: str = "float32",
    threads: int = 1,
    runtime: dict[str, Any] | None = None,
    loadtime: dict[str, Any] | None = None,
    device: Device = CPU,
    **config: Any,
) -> LoadContext:
    profile = Profile("default", runtime=runtime or {}, loadtime=loadtime or {})
    model = ResolvedModel(MODEL, ModelConfig(MODEL, profiles={"default": profile}, **config), profile)
    return LoadContext(
        model,
        device,
        precision,
        weights=folder,
        card=read_card(folder),
        threads=threads,
        runners=tuple(plugin.sie_runners()),
    )


def serve(folder: Path, family: str = "pytorch", **arguments: Any) -> Adapter:
    """Load as the engine does: by the family, or by the fallback where that one finds the files unfit."""
    given = context(folder, **arguments)
    known = {each.id: each for each in (*plugin.sie_model_families(), *fallback_plugin.sie_model_families())}
    fallback = known["sentence-transformers"]
    following = family != fallback.id and given.card is not None and isinstance(fallback.claims(given.card), Claim)
    names = (family, fallback.id) if following else (family,)
    choice = FamilyChoice(known[family], "", tuple(Candidate(name, "") for name in names))
    return load_adapter(FetchedModel(given.model, None, given.card, choice, ()), given, PluginSet(families=known))[0]


@dataclass(frozen=True)
class Answer:
    """What an adapter made of some items, in their order."""

    units: Sequence[Unit]
    outputs: Sequence[ItemOutput]

    @property
    def vectors(self) -> NDArray[np.float32]:
        return np.stack([output.dense for output in self.outputs if output.dense is not None])

    @property
    def weights(self) -> NDArray[np.float32]:
        """The sparse vectors, spelled out: `[items, vocabulary]`."""
        return np.stack([spell_out(output.sparse) for output in self.outputs if output.sparse is not None])


def spell_out(sparse: SparseVector) -> NDArray[np.float32]:
    assert sparse.dims is not None
    assert (np.diff(sparse.indices) > 0).all()
    vector = np.zeros(sparse.dims, dtype=np.float32)
    vector[sparse.indices] = sparse.values
    return vector


def task(output_types: tuple[OutputType, ...] = ("dense",), **fields: Any) -> Task:
    return Task("encode", output_types, **fields)


def ask(adapter: Adapter, items: Sequence[str | Item], max_cost: int = 4096, **fields: Any) -> Answer:
    """Encode as the engine does: prepare in one call, run cheapest first in batches, finish each."""
    units = list(
        adapter.prepare([Item(text=item) if isinstance(item, str) else item for item in items], task(**fields))
    )
    outputs: dict[int, ItemOutput] = {}
    batch: list[Unit] = []
    for unit in sorted(units, key=lambda unit: unit.cost):
        if batch and sum(each.cost for each in batch) + unit.cost > max_cost:
            _run(adapter, batch, outputs)
            batch = []
        batch.append(unit)
    _run(adapter, batch, outputs)
    return Answer(units, [outputs[unit.item] for unit in units])


def _run(adapter: Adapter, batch: list[Unit], outputs: dict[int, ItemOutput]) -> None:
    finished = adapter.finish(batch, adapter.run(batch))
    outputs.update((unit.item, output) for unit, output in zip(batch, finished, strict=True))


def deviation(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """Measure the largest difference, in standard deviations of the reference where those are above one."""
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / max(1.0, float(theirs.std())))
