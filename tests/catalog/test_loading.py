"""A family that finds weights unfit when it loads them hands them to the family that claims them next."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sie_fake.adapter import FakeAdapter
from sie_fake.adapter import load as load_fake

from sie_core.cache import WeightChain
from sie_core.catalog.fetching import FetchedModel, fetch_model
from sie_core.catalog.loading import load_adapter
from sie_core.contracts import (
    Adapter,
    Claim,
    Device,
    FamilyUnfitError,
    LoadContext,
    ModelConfig,
    ModelFamily,
    ModelLoadError,
    Option,
    Profile,
    ResolvedModel,
)
from sie_core.engine.models.load_failure import failed_load
from sie_core.engine.timeouts import DEFAULT_TIMEOUTS
from sie_core.plugins import PluginReport, PluginSet

CPU = Device("cpu")
TASKS = {"encode": {"dense": {"dim": 4}}}


def refuse(context: LoadContext) -> Adapter:
    raise FamilyUnfitError("It asks for a pooling nobody knows.")


def fail(context: LoadContext) -> Adapter:
    raise ModelLoadError("DEPENDENCY", "It needs a package.")


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PluginSet]:
    """Make families of load functions, the first of which has the highest priority."""

    def make(*loads: Callable[[LoadContext], Adapter]) -> PluginSet:
        module = types.ModuleType("sie_test_loads")
        monkeypatch.setitem(sys.modules, "sie_test_loads", module)
        families = {}
        for number, load in enumerate(loads):
            setattr(module, f"load_{number}", load)
            claim = Claim(f"claim {number}", -number)
            options = (Option(f"of_{number}", "load", int, description="A number."),)
            families[f"f{number}"] = ModelFamily(
                f"f{number}", f"sie_test_loads:load_{number}", lambda card, claim=claim: claim, options=options
            )
        return PluginSet(families=families)

    return make


@pytest.fixture
def fetched(write_weights: Callable[..., Path], tmp_path: Path) -> Callable[..., FetchedModel]:
    def fetch(plugins: PluginSet, adapter_path: str | None = None, **loadtime: int) -> FetchedModel:
        profile = Profile("default", adapter_path=adapter_path, loadtime=loadtime)
        folder = str(write_weights(tmp_path / "weights"))
        config = ModelConfig("org/m", weights_path=folder, profiles={"default": profile}, tasks=TASKS)
        return fetch_model(ResolvedModel("org/m", config, profile), WeightChain([]), plugins, CPU)

    return fetch


def load(found: FetchedModel, plugins: PluginSet) -> tuple[Adapter, FetchedModel]:
    return load_adapter(found, LoadContext(found.resolved, CPU, "float32", card=found.card), plugins)


def test_the_family_that_claims_next_is_asked_and_told_why(
    plugins: Callable[..., PluginSet], fetched: Callable[..., FetchedModel]
) -> None:
    seen: list[LoadContext] = []
    known = plugins(refuse, refuse, lambda context: seen.append(context) or load_fake(context))
    adapter, served = load(fetched(known), known)
    assert adapter.facts.dims == {"dense": 4}
    assert served.choice.family.id == "f2"
    assert (
        "claim 2; with higher priority f1 claimed it and found it unfit: It asks for a pooling" in served.choice.reason
    )
    assert seen[0].unfit == " ".join(["It asks for a pooling nobody knows."] * 2)


def test_options_are_those_of_the_family_that_serves(
    plugins: Callable[..., PluginSet], fetched: Callable[..., FetchedModel]
) -> None:
    known = plugins(refuse, load_fake)
    found = fetched(known, of_1=3)
    assert found.ignored == ("loadtime.of_1",)
    assert load(found, known)[1].ignored == ()


@pytest.mark.parametrize(
    ("loads", "named", "failure", "told"),
    [
        ((refuse,), None, "CONFIG", "nobody knows. No other installed family claims it."),
        ((refuse, load_fake), "f0", "CONFIG", "nobody knows. The config names the family f0 (`adapter_path`)."),
        ((refuse, fail), None, "DEPENDENCY", "nobody knows. It needs a package."),
        ((fail, load_fake), None, "DEPENDENCY", "It needs a package."),
    ],
)
def test_a_load_that_nobody_does_says_what_each_family_said(
    plugins: Callable[..., PluginSet],
    fetched: Callable[..., FetchedModel],
    loads: tuple[Callable[[LoadContext], Adapter], ...],
    named: str | None,
    failure: str,
    told: str,
) -> None:
    known = plugins(*loads)
    with pytest.raises(ModelLoadError) as raised:
        load(fetched(known, named), known)
    assert raised.value.failure == failure
    assert str(raised.value).endswith(told)


def named(plugins: PluginSet) -> PluginSet:
    report = PluginReport("odd", "sie-odd", "1.2", "sie_odd", "active", registers={"sie_model_families": ("f0",)})
    return replace(plugins, reports=(report,))


class Older(FakeAdapter):
    def run(self) -> None:  # type: ignore[override]
        """Take nothing."""


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: None, ["lacks the parameter 'context'", "docs/extend/compatibility.md"]),
        (lambda context: None, ["returned no `Adapter`"]),
        (lambda context: object.__new__(Older), ["its `run` lacks the parameter 'units'"]),
    ],
)
def test_a_load_of_another_contract_is_refused_by_family_and_plugin(
    plugins: Callable[..., PluginSet], fetched: Callable[..., FetchedModel], wrong: Any, told: list[str]
) -> None:
    known = named(plugins(wrong))
    with pytest.raises(ModelLoadError) as refused:
        load(fetched(known), known)
    assert refused.value.failure == "DEPENDENCY"
    for words in ("the model family 'f0' of the plugin 'odd' of sie-odd 1.2", *told):
        assert words in str(refused.value)


def test_an_unforeseen_error_of_a_load_names_family_and_plugin(
    plugins: Callable[..., PluginSet], fetched: Callable[..., FetchedModel]
) -> None:
    def broken(context: LoadContext) -> Adapter:
        raise KeyError("secret")

    known = named(plugins(broken))
    with pytest.raises(KeyError) as raised:
        load(fetched(known), known)
    message = failed_load("org/m", raised.value, None, 0.0, DEFAULT_TIMEOUTS).message
    assert "its adapter raised KeyError" in message
    assert "raised by the model family 'f0' of the plugin 'odd' of sie-odd 1.2" in message
    assert "secret" not in message


def test_a_class_with_load_is_served_as_before_the_release(
    plugins: Callable[..., PluginSet], fetched: Callable[..., FetchedModel]
) -> None:
    class Class(Adapter):
        @classmethod
        def load(cls, context: LoadContext) -> Adapter:
            return load_fake(context)

    known = plugins(Class)
    assert load(fetched(known), known)[0].facts.dims == {"dense": 4}
