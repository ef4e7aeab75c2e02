"""The author's kit passes what is right and fails each kind of fault, with the reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import SkipTest

import pytest
import sie_kit as kit
from sie_fake.adapter import FakeAdapter
from sie_kit import LoadedModel, checks_of, conformance
from sie_kit.checks.adapter import ADAPTER_CHECKS
from sie_kit.loading import fitting, samples

from sie_core.contracts import (
    Device,
    Item,
    LoadContext,
    ModelConfig,
    ModelFacts,
    PluginError,
    Profile,
    ResolvedModel,
)
from sie_core.plugins import discover
from sie_core.settings import Settings

test_sie_fake_conforms = conformance("sie-fake", models=["sie-fake/embedder:tuned", "sie-fake/extractor:windowed"])
test_sie_core_conforms = conformance("sie-core")
ACCELERATED = checks_of("sie-fake", models=["sie-fake/media"], device="fake")
CONVERTED = checks_of("sie-fake", models=["sie-fake/tokens:muvera"])


@pytest.mark.parametrize("check", [each for each in ACCELERATED if each.kind == "model"], ids=str)
def test_a_model_on_the_emulated_accelerator_conforms(check):
    check.run()


def test_a_profile_that_makes_other_outputs_than_its_adapter_is_served():
    (check,) = [each for each in CONVERTED if each.id == "model/the-engine-serves-it"]
    check.run()


ENCODES = {"encode": {"dense": {"dim": 8}}}
NAMES = [Item(text="here person=Ada lives"), Item(text="place=Rome and person=Bo in a model")]


class RemembersItsLastLora(FakeAdapter):
    last = None

    def _output(self, row, lora):
        self.last = lora or self.last
        return super()._output(row, self.last)


class IgnoresLoras(FakeAdapter):
    def _output(self, row, lora):
        return super()._output(row, None)


class MergesLoras(FakeAdapter):
    merged = None

    def load_lora(self, name, folder):
        self.merged = super().load_lora(name, folder)
        return self.merged

    def _output(self, row, lora):
        return super()._output(row, lora or self.merged)


@pytest.mark.parametrize(
    ("adapter", "told"),
    [
        (RemembersItsLastLora, "encode of the base model moves by .* beside other LoRA adapters"),
        (MergesLoras, "encode of the base model moves by .* beside other LoRA adapters"),
        (IgnoresLoras, "the LoRA adapter legal changes no encode output: it is not applied"),
    ],
)
def test_an_adapter_that_mixes_up_loras_fails(adapter, told, tmp_path):
    model = replace(loaded(adapter, takes_lora=True), loras={"legal": tmp_path, "medical": tmp_path})
    with pytest.raises(AssertionError, match=told):
        run_check("a_lora_adapter_changes_its_own_rows_alone", model)


def test_rows_with_and_without_loras_are_each_what_they_are_alone(tmp_path):
    model = replace(loaded(FakeAdapter, takes_lora=True), loras={"legal": tmp_path, "medical": tmp_path})
    run_check("a_lora_adapter_changes_its_own_rows_alone", model)


def test_images_are_asked_of_a_model_that_sees_and_texts_of_one_that_reads():
    both, image = ModelFacts(inputs=("text", "image")), ModelFacts(inputs=("image",))
    assert [bool(item.images) for item in fitting(NAMES, both)] == [False, False, True, True]
    assert all(item.images and item.text is None for item in fitting(NAMES, image))


def loaded(adapter: type[FakeAdapter], tasks: Mapping[str, Any] = ENCODES, **loadtime: Any) -> LoadedModel:
    config = ModelConfig("test/kit", weightless=True, tasks=tasks, max_sequence_length=64)
    resolved = ResolvedModel("test/kit", config, Profile("default", "fake", loadtime=loadtime))
    family = discover(Settings(plugins=("fake",))).families["fake"]
    return LoadedModel(adapter(LoadContext(resolved, Device("cpu"), "float32")), family, resolved)


def run_check(name: str, model: LoadedModel, items: Sequence[Item] | None = None) -> None:
    (check,) = [check for check in ADAPTER_CHECKS if check.__name__ == name]
    check(model, items or samples())


def test_the_kit_lists_every_part_of_a_distribution():
    names = [str(check) for check in checks_of("sie-fake")]

    assert "family fake: its load can be imported" in names
    assert "device probe fake: memory adds up" in names
    for model in (
        "sie-fake/dense",
        "sie-fake/embedder",
        "sie-fake/embedder:faulty",
        "sie-fake/embedder:slow",
        "sie-fake/embedder:tuned",
    ):
        assert f"model {model}: a row of a batch is the batch of one" in names
    assert len(names) == len(set(names))


def test_a_distribution_of_commands_alone_is_checked_too():
    checks = {str(check): check for check in checks_of("sie-kit")}
    checks["command plugins new: its commands can be called"].run()
    assert "distribution sie-kit: discovery stays light" in checks


def test_a_distribution_without_a_plugin_is_named_with_those_that_have_one():
    with pytest.raises(PluginError, match=r"'sie-fakee' is installed; there are those of .*sie-fake"):
        checks_of("sie-fakee")


def test_every_name_of_the_kit_is_what_it_says_even_once_its_module_is_loaded():
    for name in kit.__all__:
        getattr(kit, name)
    for name in kit.__all__:
        assert callable(getattr(kit, name))
        assert getattr(kit, name).__name__ == name


FAMILY_ALONE = """
from sie_core.contracts import ModelFamily
from sie_core.hookspecs import hookimpl
CONTRACT_VERSION = 1
@hookimpl
def sie_model_families():
    return [ModelFamily("t-alone", "sie_fake.adapter:load", lambda card: None, weightless=True)]
"""
CONFIG = """
sie_id: test/alone
package_backed: true
tasks: { encode: { dense: { dim: 4 } } }
profiles: { default: { adapter_path: t-alone } }
"""


@pytest.fixture
def a_family_without_models(tmp_path, monkeypatch):
    """A distribution whose family has no model on this machine."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "t_alone.py").write_text(FAMILY_ALONE)
    info = tmp_path / "t_alone-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: t-alone\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sie]\nt-alone = t_alone\n")
    yield "t-alone"
    sys.modules.pop("t_alone", None)


def test_a_kit_that_checked_no_model_says_so_and_how_to_name_one(a_family_without_models):
    (check,) = [each for each in checks_of(a_family_without_models) if each.name == "a model is checked"]

    with pytest.raises(SkipTest, match="none of their models was checked") as skipped:
        check.run()
    assert 'conformance("t-alone", models=["org/name"])' in str(skipped.value)
    assert 'conformance("t-alone", models_dir=Path("models"))' in str(skipped.value)


def test_a_folder_of_models_is_checked_with_the_distribution(a_family_without_models, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "alone.yaml").write_text(CONFIG)

    names = [str(check) for check in checks_of(a_family_without_models, models_dir=tmp_path / "models")]

    assert "model test/alone: a row of a batch is the batch of one" in names
    assert not any("a model is checked" in name for name in names)
