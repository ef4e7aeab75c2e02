"""Weights of other formats than safetensors, which a family declares: what is fetched, found, checked and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sie_core.cache import DiskCache, HubTier, LocalTier, WeightChain
from sie_core.cache.disk.hub_layout import wanted
from sie_core.catalog.fetching import fetch_model
from sie_core.contracts import (
    Claim,
    Device,
    ModelCard,
    ModelConfig,
    ModelFamily,
    ModelLoadError,
    Profile,
    ResolvedModel,
    WeightRequest,
)
from sie_core.plugins import PluginSet
from tests.cache.fake_hub import FakeHub

ONNX = ("*.onnx",)
REQUEST = WeightRequest("org/m", weights=ONNX)
DESCRIBED = {"config.json", "tokenizer.json", "vocab.txt"}


def make_chain(hub: FakeHub, folder: Path, others: tuple[str, ...] = ()) -> WeightChain:
    cache = DiskCache(folder)
    return WeightChain([LocalTier(cache), HubTier(cache, hub.url)], cache, others=others)


def names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_the_files_of_the_family_are_fetched_in_place_of_safetensors(hub: FakeHub, tmp_path: Path) -> None:
    chain = make_chain(hub, tmp_path)
    folder = chain.fetch(REQUEST)
    assert names(folder) == {*DESCRIBED, "onnx/model.onnx"}
    assert chain.find(REQUEST) == ("local", folder)
    assert chain.find(WeightRequest("org/m")) is None, "there are no safetensors yet"
    chain.fetch(WeightRequest("org/m"))
    assert names(folder) == {*DESCRIBED, "onnx/model.onnx", "model.safetensors"}


def test_a_damaged_file_of_any_format_is_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    chain = make_chain(hub, tmp_path)
    folder = chain.fetch(REQUEST)
    (folder / "onnx/model.onnx").resolve().write_bytes(b"grabh")
    assert (chain.fetch(REQUEST) / "onnx/model.onnx").read_bytes() == b"graph"


def test_a_repository_without_safetensors_gives_what_some_family_reads(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["org/g"] = {"model-Q8.gguf": b"quantised", "README.md": b"# A model", "model.pkl": b"pickled"}
    with pytest.raises(ModelLoadError, match="safetensors are needed"):
        make_chain(hub, tmp_path).fetch(WeightRequest("org/g"))
    chain = make_chain(hub, tmp_path, others=("*.gguf", "*"))
    folder = chain.fetch(WeightRequest("org/g"))
    assert names(folder) == {"model-Q8.gguf", "README.md"}
    assert chain.find(WeightRequest("org/g")) == ("local", folder)
    hub.failure = (500, {})
    assert chain.peeking().fetch(WeightRequest("org/g")) == folder


def test_a_family_that_misses_its_files_names_them(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"org/m has no \*\.gguf, which its family reads") as raised:
        make_chain(hub, tmp_path).fetch(WeightRequest("org/m", weights=("*.gguf",)))
    assert raised.value.failure == "CONFIG"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "head.pt", "sub/weights.PKL", "model.joblib"])
def test_no_pattern_takes_a_pickle(name: str) -> None:
    assert not wanted(name, ("*",))


def claims(priority: int) -> Callable[[ModelCard], Claim | None]:
    return lambda card: Claim("it has a model type", priority) if card.model_type else None


def fetched(
    hub: FakeHub, cache: Path, *families: ModelFamily, named: str | None = None
) -> tuple[ModelCard | None, str]:
    plugins = PluginSet(families={each.id: each for each in families})
    profile = Profile("default", adapter_path=named)
    model = ResolvedModel("org/m", ModelConfig("org/m", profiles={"default": profile}), profile)
    return fetch_model(model, make_chain(hub, cache, plugins.other_weights), plugins, Device("cpu"))


@pytest.mark.parametrize(("named", "more"), [(None, {"model.safetensors"}), ("graphs", set())])
def test_a_load_brings_the_files_of_the_family_that_serves(
    hub: FakeHub, tmp_path: Path, named: str | None, more: set[str]
) -> None:
    graphs = ModelFamily("graphs", "x:load", claims(9), weights=ONNX)
    plain = ModelFamily("plain", "x:load", claims(0))
    found = fetched(hub, tmp_path, graphs, plain, named=named)
    assert found.choice.family.id == "graphs"
    assert found.card is not None
    assert set(found.card.files) == {*DESCRIBED, "onnx/model.onnx", *more}


def test_other_formats_stay_away_from_a_family_of_safetensors(hub: FakeHub, tmp_path: Path) -> None:
    graphs = ModelFamily("graphs", "x:load", claims(-9), weights=ONNX)
    found = fetched(hub, tmp_path, graphs, ModelFamily("plain", "x:load", claims(0)))
    assert found.choice.family.id == "plain"
    assert found.card is not None
    assert set(found.card.files) == {*DESCRIBED, "model.safetensors"}
