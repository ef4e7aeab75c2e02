"""The race at a first load: the fastest runner that proves itself serves, and later loads keep to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sie_pytorch.forward import BuiltRunner
from sie_pytorch.forward.choice import race
from sie_pytorch.forward.choice.timing import Benchmark, Figures

from sie_core.cache.choices import WeightChoices, kept_choices
from sie_core.contracts import RunnerSpec
from sie_core.plugins import PluginSet
from sie_core.settings import load_settings
from tests.pytorch.forward.support import PACKED, TOLERANCE, batch_for, build, deviation, forward
from tests.pytorch.forward.test_proof import spec

SLOW = spec("Slow", priority=99)
SLOW_PADDED = spec("SlowPadded", priority=9)


@pytest.fixture
def kept(checkpoint: Callable[[str], Path], tmp_path: Path) -> WeightChoices:
    """What loads of the tiny BERT chose."""
    return kept_choices(load_settings(local_cache=tmp_path / "cache"), PluginSet(), checkpoint("bert"))


@pytest.fixture
def load(
    checkpoint: Callable[[str], Path], kept: WeightChoices, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., BuiltRunner]:
    monkeypatch.setattr(race, "RACE_S", 1000.0)  # however busy the machine is

    def load(specs: Sequence[RunnerSpec], name: str = "bert", **arguments: Any) -> BuiltRunner:
        return build(checkpoint(name), specs, **{"choices": kept, **arguments})

    return load


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runners that are timed, in order."""
    time, names = Benchmark.time, []

    def watched(benchmark: Benchmark, name: str, runner: Any) -> Any:
        names.append(name)
        return time(benchmark, name, runner)

    monkeypatch.setattr(Benchmark, "time", watched)
    return names


def test_a_slow_runner_of_high_priority_does_not_serve_and_both_figures_are_told(
    load: Callable[..., BuiltRunner], raced: list[str], caplog: pytest.LogCaptureFixture, padded: Callable
) -> None:
    with caplog.at_level(logging.DEBUG, "sie_pytorch"):
        chosen = load([SLOW, *PACKED])
    assert chosen.info.name == "packed"
    assert raced == ["Slow", "packed", "Slow"], "the first runs once more before it is displaced"
    race = chosen.info.notes["race"]
    assert race.startswith("Slow ")
    assert ", packed " in race
    assert f"bert: {race}" in caplog.text
    assert deviation(forward(chosen, batch_for("bert")), padded("bert", "eager")) <= TOLERANCE


def test_without_a_place_to_keep_the_outcome_there_is_no_race(
    load: Callable[..., BuiltRunner], raced: list[str]
) -> None:
    assert load([SLOW, *PACKED], choices=None).info.name == "Slow"
    assert load([SLOW, *PACKED], runner="priority").info.name == "Slow"
    assert load([spec("Slow", priority=-1), *PACKED], runner="Slow").info.name == "Slow"
    kernels = spec("Slow", priority=9, attention_backends=frozenset({"auto", "acme"}))
    assert load([kernels, *PACKED], attention_backend="acme").info.name == "Slow"
    assert "race" not in load(PACKED).info.notes
    assert raced == []


def test_the_next_load_keeps_to_the_outcome_and_makes_no_other_runner(
    load: Callable[..., BuiltRunner], raced: list[str]
) -> None:
    first = load([SLOW, *PACKED])
    del raced[:]
    again = load([SLOW, *PACKED])
    assert raced == []
    assert again.info.name == "packed"
    assert again.info.notes["race"] == f"{first.info.notes['race']} (measured by an earlier load)"
    assert "Slow" not in again.info.reason


def test_another_setup_races_again(load: Callable[..., BuiltRunner], raced: list[str]) -> None:
    load([SLOW, *PACKED])
    for arguments in ({"threads": 3}, {"needs_lora": True}, {"expands_queries": True}):
        del raced[:]
        load([SLOW, *PACKED], **arguments)
        assert raced[:2] == ["Slow", "packed"]
    del raced[:]
    load([SLOW, spec("Sound"), *PACKED])
    assert raced[:3] == ["Slow", "Sound", "packed"]


def test_a_runner_that_was_compiled_anew_races_again(load: Callable[..., BuiltRunner], raced: list[str]) -> None:
    load([replace(SLOW, build="none"), *PACKED])
    raced.clear()
    load([replace(SLOW, build="none"), *PACKED])
    assert raced == []
    load([replace(SLOW, build="kernels.so 1 2"), *PACKED])
    assert "Slow" in raced


def test_a_winner_that_no_longer_proves_itself_is_displaced_by_a_new_race(
    load: Callable[..., BuiltRunner], kept: WeightChoices, raced: list[str]
) -> None:
    load([SLOW, *PACKED])
    (choice,) = kept.all()
    wrong = spec("OneSegment", priority=1)
    kept.keep(replace(choice, chosen="OneSegment", setup={**choice.setup, "candidates": "Slow, OneSegment, packed"}))
    del raced[:]
    chosen = load([SLOW, wrong, *PACKED])
    assert raced[:2] == ["Slow", "packed"]
    assert chosen.info.name == "packed"
    assert chosen.info.reason.count("not OneSegment") == 1


def test_a_runner_that_fails_while_it_is_timed_costs_only_itself(load: Callable[..., BuiltRunner]) -> None:
    chosen = load([spec("FailsWhenTimed", priority=5), *PACKED])
    assert chosen.info.name == "packed"
    assert "not FailsWhenTimed: it failed with NotImplementedError on long batches" in chosen.info.reason


def test_the_padded_runner_races_where_packed_is_refused(
    load: Callable[..., BuiltRunner], checkpoint: Callable, raced: list[str], tmp_path: Path
) -> None:
    other = kept_choices(load_settings(local_cache=tmp_path / "cache"), PluginSet(), checkpoint("mpnet"))
    chosen = load([SLOW_PADDED, *PACKED], "mpnet", choices=other)
    assert raced == ["SlowPadded", "padded", "SlowPadded"]
    assert chosen.info.name == "padded"
    assert "not packed: " in chosen.info.reason


@pytest.mark.parametrize(("name", "specs"), [("bert", [SLOW, *PACKED]), ("mpnet", [SLOW_PADDED, *PACKED])])
def test_a_race_that_was_cut_short_is_run_again_by_the_next_load(
    name: str, specs: list[RunnerSpec], load: Callable[..., BuiltRunner], checkpoint: Callable, raced: list[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    choices = kept_choices(load_settings(local_cache=tmp_path / "cache"), PluginSet(), checkpoint(name))
    with monkeypatch.context() as patch:
        patch.setattr(race, "RACE_S", 0.0)
        assert load(specs, name, choices=choices).info.name == specs[0].name
    assert (raced, choices.all()) == ([specs[0].name], [])
    chosen = load(specs, name, choices=choices).info.name
    assert chosen in ("packed", "padded")
    assert [choice.chosen for choice in choices.all()] == [chosen]


def test_a_file_that_cannot_be_read_costs_a_race(
    load: Callable[..., BuiltRunner], kept: WeightChoices, raced: list[str]
) -> None:
    kept.file.parent.mkdir(parents=True)
    kept.file.write_bytes(b"{")
    assert load([SLOW, *PACKED]).info.name == "packed"
    assert raced
    assert [choice.chosen for choice in kept.all()] == ["packed"]


def test_a_race_that_is_not_clear_is_run_again_until_two_agree(
    load: Callable[..., BuiltRunner], kept: WeightChoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([])

    def timed(benchmark: Benchmark, name: str, runner: Any) -> Figures:
        return Figures(name, *[next(seconds)] * 2)

    monkeypatch.setattr(Benchmark, "time", timed)

    def served(*figures: float) -> tuple[str, bool]:
        """Load with these figures; give who serves, and whether later loads keep to it."""
        nonlocal seconds
        seconds = iter(figures)
        chosen = load([spec("Sound"), *PACKED]).info.name
        assert next(seconds, None) is None, "every figure is of a race that was run"
        (choice,) = kept.all()
        assert choice.chosen == chosen
        return chosen, choice.settled

    busy = 1.6
    assert served(busy, 1.0, busy) == ("packed", False), "a busy moment made the first slower"
    assert served(1.0, 1.0) == ("Sound", False)
    assert served(1.0, 1.0) == ("Sound", True)
    assert served() == ("Sound", True)


def test_a_clear_race_is_kept_at_once(load: Callable[..., BuiltRunner], kept: WeightChoices) -> None:
    load([SLOW, *PACKED])
    (choice,) = kept.all()
    assert choice.settled
