"""What loads chose, kept beside the cache for the same weights, machine and versions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sie_core.cache.choices import KEPT, WeightChoices, kept_choices
from sie_core.contracts import KeptChoice, PluginSetting, processor
from sie_core.plugins import PluginReport, PluginSet
from sie_core.settings import load_settings

SETUP = {"threads": "2"}
CHOICE = KeptChoice("runner", "fast", "fast 1 ms, slow 2 ms", setup=SETUP)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def choices(weights: Path, tmp_path: Path) -> Callable[..., WeightChoices]:
    def of(version: str = "1.0.0") -> WeightChoices:
        report = PluginReport("acme", "sie-acme", version, "acme", "active")
        return kept_choices(load_settings(local_cache=tmp_path / "cache"), PluginSet((report,)), weights)

    return of


def test_a_choice_is_recalled_for_its_setup_alone(choices: Callable[..., WeightChoices]) -> None:
    assert choices().recall("runner", SETUP) is None
    choices().keep(CHOICE)
    assert choices().recall("runner", SETUP) == CHOICE
    assert choices().recall("runner", {"threads": "4"}) is None
    assert choices().recall("other", SETUP) is None


def test_a_later_choice_takes_the_place_of_the_earlier_for_the_same_setup(
    choices: Callable[..., WeightChoices],
) -> None:
    later = KeptChoice("runner", "slow", "slow 1 ms, fast 2 ms", setup=SETUP)
    other = KeptChoice("runner", "fast", "", setup={"threads": "4"})
    for choice in (CHOICE, other, later):
        choices().keep(choice)
    assert choices().all() == [other, later]


def test_the_oldest_of_many_are_dropped(choices: Callable[..., WeightChoices]) -> None:
    for number in range(KEPT + 3):
        choices().keep(KeptChoice("runner", "fast", "", setup={"threads": str(number)}))
    assert [choice.setup["threads"] for choice in choices().all()] == [str(number) for number in range(3, KEPT + 3)]


def test_the_choices_about_one_thing_drop_none_about_another(choices: Callable[..., WeightChoices]) -> None:
    choices().keep(CHOICE)
    for number in range(KEPT + 3):
        choices().keep(KeptChoice("served", "fast", "", setup={"model": str(number)}))
    assert choices().recall("runner", SETUP) == CHOICE
    assert len(choices().all()) == 1 + KEPT


def test_another_value_of_a_variable_that_a_plugin_reads_forgets_them(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = PluginSet(settings=(PluginSetting("SIE_ACME_ISA", "auto", "Instruction set of acme."),))

    def choices() -> WeightChoices:
        return kept_choices(load_settings(local_cache=tmp_path / "cache"), plugins, weights)

    choices().keep(CHOICE)
    assert choices().recall("runner", SETUP) == CHOICE
    monkeypatch.setenv("SIE_ACME_ISA", "avx2")
    assert choices().recall("runner", SETUP) is None
    monkeypatch.delenv("SIE_ACME_ISA")
    assert choices().recall("runner", SETUP) == CHOICE


def test_a_processor_whose_instructions_are_masked_is_another_machine(
    choices: Callable[..., WeightChoices], monkeypatch: pytest.MonkeyPatch
) -> None:
    choices().keep(CHOICE)
    fewer = replace(processor(), flags=frozenset({"avx2"}))
    monkeypatch.setattr("sie_core.cache.choices.processor", lambda: fewer)
    assert choices().recall("runner", SETUP) is None


def test_another_version_of_a_plugin_or_another_machine_forgets_them(
    choices: Callable[..., WeightChoices], monkeypatch: pytest.MonkeyPatch
) -> None:
    choices().keep(CHOICE)
    assert choices("1.0.1").all() == []
    elsewhere = WeightChoices(choices().file, {**choices().stamp, "machine": "another"})
    assert elsewhere.all() == []
    assert choices().all() == [CHOICE]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"choices": 3}', b"\xff\xfe", b'{"choices": [{"about": 1}]}', b"null"]
)
def test_a_file_that_cannot_be_read_counts_as_none(content: bytes, choices: Callable[..., WeightChoices]) -> None:
    choices().keep(CHOICE)
    kept = WeightChoices(choices().file, {})
    kept.file.write_bytes(content)
    assert kept.all() == []
    choices().keep(CHOICE)
    assert choices().all() == [CHOICE]


def test_a_folder_that_cannot_be_written_to_keeps_nothing(choices: Callable[..., WeightChoices]) -> None:
    folder = choices().file.parent
    folder.parent.mkdir(parents=True)
    folder.write_bytes(b"a file where the folder should be")
    choices().keep(CHOICE)
    assert choices().all() == []


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_weights_that_changed_are_other_weights(
    file: str, choices: Callable[..., WeightChoices], weights: Path
) -> None:
    choices().keep(CHOICE)
    os.utime(weights / file, (1, 1))
    assert choices().all() == []


def test_they_lie_where_the_hub_client_lets_libraries_keep_files_of_their_own(
    weights: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    assert kept_choices(load_settings(), PluginSet(), weights).file.parent.parent == tmp_path / "assets"
