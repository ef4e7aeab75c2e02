"""Which family serves a model: config over device over priority over name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sie_core.catalog import choose_family, families, read_card
from sie_core.contracts import (
    Claim,
    Device,
    ModelCard,
    ModelConfig,
    ModelFamily,
    ModelLoadError,
    NoClaim,
    Profile,
    ResolvedModel,
    claim_architectures,
)
from sie_core.plugins import PluginReport, PluginSet

CPU = Device("cpu")


@pytest.fixture
def card(write_weights: Callable[..., Path], tmp_path: Path) -> ModelCard:
    return read_card(write_weights(tmp_path / "bert"))


def family(name: str, *, priority: int = 0, devices: tuple[str, ...] = (), claims: str = "BertModel") -> ModelFamily:
    return ModelFamily(name, "x:load", claim_architectures(claims, priority=priority), devices=frozenset(devices))


def plugins(*families: ModelFamily, reports: tuple[PluginReport, ...] = ()) -> PluginSet:
    return PluginSet(families={each.id: each for each in families}, reports=reports)


def model(adapter_path: str | None = None, *, weightless: bool = False) -> ResolvedModel:
    profile = Profile("default", adapter_path=adapter_path)
    config = ModelConfig("org/m", hf_id="org/m", weightless=weightless, profiles={"default": profile})
    return ResolvedModel("org/m", config, profile)


def test_the_config_decides_over_everything(card: ModelCard) -> None:
    choice = choose_family(plugins(family("a", priority=9), family("b")), model("b"), card, CPU)
    assert choice.family.id == "b"
    assert "config" in choice.reason
    assert [each.family for each in choice.candidates] == ["b", "a"]


def test_a_family_that_does_not_serve_the_device_loses_to_one_that_does(card: ModelCard) -> None:
    known = plugins(family("flash", priority=9, devices=("cuda",)), family("plain"))
    assert choose_family(known, model(), card, CPU).family.id == "plain"
    assert choose_family(known, model(), card, Device("cuda")).family.id == "flash"


def test_the_higher_priority_wins_and_the_reason_says_over_whom(card: ModelCard) -> None:
    choice = choose_family(plugins(family("a", priority=1), family("b", priority=2)), model(), card, CPU)
    assert choice.family.id == "b"
    assert "BertModel" in choice.reason
    assert "above a's 1" in choice.reason


def test_equal_priority_is_decided_by_name(card: ModelCard) -> None:
    choice = choose_family(plugins(family("b"), family("a")), model(), card, CPU)
    assert choice.family.id == "a"
    assert "by name" in choice.reason


def test_another_servers_class_path_is_only_a_hint_and_noted(card: ModelCard) -> None:
    choice = choose_family(plugins(family("a")), model("other_server.adapters.bert:BertAdapter"), card, CPU)
    assert choice.family.id == "a"
    assert "other_server.adapters.bert:BertAdapter" in choice.reason
    assert "hint" in choice.reason


def test_nobody_claims_it_names_the_architecture_the_families_and_broken_plugins(card: ModelCard) -> None:
    report = PluginReport("vision", "sie-vision", "0.3", "sie_vision.plugin", "broken", cause="No module named 'timm'")
    with pytest.raises(ModelLoadError) as raised:
        choose_family(plugins(family("a", claims="LlamaModel"), reports=(report,)), model(), card, CPU)
    assert raised.value.failure == "DEPENDENCY"
    for part in ("org/m", "bert", "BertModel", "families: a", "vision", "sie-vision 0.3", "No module named 'timm'"):
        assert part in str(raised.value)


def refuses(name: str, reason: str) -> ModelFamily:
    return ModelFamily(name, "x:load", lambda card: NoClaim(reason))


def test_nobody_claims_it_says_each_reason_once_with_the_families_that_give_it(card: ModelCard) -> None:
    known = plugins(
        refuses("a", "its pooling is odd"), refuses("b", "its head is odd"), refuses("c", "its head is odd")
    )
    with pytest.raises(ModelLoadError) as raised:
        choose_family(known, model(), card, CPU)
    assert raised.value.failure == "DEPENDENCY"
    assert " a: its pooling is odd. b, c: its head is odd. " in str(raised.value)


def test_a_family_that_says_why_not_takes_no_place_from_one_that_claims(card: ModelCard) -> None:
    choice = choose_family(plugins(refuses("a", "its pooling is odd"), family("z", priority=-9)), model(), card, CPU)
    assert choice.family.id == "z"
    assert [each.family for each in choice.candidates] == ["z"]
    assert [(each.family, each.reason) for each in choice.refusals] == [("a", "its pooling is odd")]


def test_an_unregistered_family_is_a_dependency_error_with_near_names_and_broken_plugins(card: ModelCard) -> None:
    report = PluginReport("x", "sie-x", "1", "sie_x", "broken", cause="boom")
    with pytest.raises(ModelLoadError) as raised:
        choose_family(plugins(family("pytorch"), reports=(report,)), model("pytorh"), card, CPU)
    assert raised.value.failure == "DEPENDENCY"
    for part in ("'pytorh'", "Did you mean pytorch?", "adapter_path", "boom"):
        assert part in str(raised.value)


def test_a_device_nobody_serves_is_named(card: ModelCard) -> None:
    known = plugins(family("flash", devices=("cuda",)))
    with pytest.raises(ModelLoadError, match=r"flash \(cuda\).*cpu"):
        choose_family(known, model(), card, CPU)
    with pytest.raises(ModelLoadError, match="cuda") as raised:
        choose_family(known, model("flash"), card, CPU)
    assert raised.value.failure == "CONFIG"


def test_a_weightless_model_needs_a_weightless_family_by_name(card: ModelCard) -> None:
    weightless = ModelFamily("fake", "x:load", lambda card: Claim("everything", 99), weightless=True)
    known = plugins(weightless, family("a"))
    assert choose_family(known, model("fake", weightless=True), None, CPU).family.id == "fake"
    assert choose_family(known, model(), card, CPU).family.id == "a"
    for wrong in (model(weightless=True), model("a", weightless=True), model("pkg.mod:Class", weightless=True)):
        with pytest.raises(ModelLoadError) as raised:
            choose_family(known, wrong, None, CPU)
        assert raised.value.failure == "CONFIG"


REPORT = PluginReport("odd", "sie-odd", "1.2", "sie_odd", "active", registers={"sie_model_families": ("bad",)})


def bad(claims: Callable[[ModelCard], Claim | None]) -> ModelFamily:
    return ModelFamily("bad", "x:load", claims)


def claims_hang(card: ModelCard) -> Claim | None:
    HELD.wait(30)
    return None


HELD = threading.Event()
WRONG: list[tuple[Any, str]] = [
    (lambda card: card.config["secret"], "failed to read a model's card (KeyError)"),
    (lambda card: sys.exit(3), "failed to read a model's card (SystemExit)"),
    (lambda card: True, "returned a bool from `claims`"),
    (lambda card: "BertModel", "returned a str from `claims`"),
    (lambda card: Claim("mine", None), "returned a Claim from `claims`"),  # type: ignore[arg-type]
    (claims_hang, "did not come back within 1 s from `claims`"),
]


@pytest.mark.parametrize(("claims", "told"), WRONG)
def test_a_claim_that_fails_stops_no_other_family_and_names_its_plugin(
    card: ModelCard, claims: Any, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(families, "CLAIM_LIMIT_S", 1.0 if claims is claims_hang else 30)
    HELD.clear()
    known = plugins(bad(claims), family("a"), reports=(REPORT,))
    try:
        assert choose_family(known, model(), card, CPU).family.id == "a"
        assert choose_family(known, model("a"), card, CPU).family.id == "a"
        with pytest.raises(ModelLoadError) as raised:
            choose_family(known, model(), replace(card, config={"architectures": ["Other"]}), CPU)
    finally:
        HELD.set()

    assert raised.value.failure == "DEPENDENCY"
    assert f"plugin 'odd' of sie-odd 1.2: the model family 'bad' {told}" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert f"plugin 'odd' of sie-odd 1.2: the model family 'bad' {told}" in caplog.text
    (report,) = known.reports_now()
    assert report.state == "failing"
    assert told in (report.cause or "")


def test_a_claim_that_hung_is_asked_again_once_it_came_back(card: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    go, asked = threading.Event(), []

    def claims(card: ModelCard) -> Claim:
        asked.append(threading.current_thread())
        go.wait(30)
        return Claim("late", priority=9)

    monkeypatch.setattr(families, "CLAIM_LIMIT_S", 1.0)  # the other family has to answer within it
    known = plugins(bad(claims), family("a"))
    assert [choose_family(known, model(), card, CPU).family.id for _ in range(3)] == ["a", "a", "a"]
    assert len(asked) == 1
    go.set()
    asked[0].join(30)
    monkeypatch.setattr(families, "CLAIM_LIMIT_S", 30)
    assert choose_family(known, model(), card, CPU).family.id == "bad"
