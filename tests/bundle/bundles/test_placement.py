"""Which bundles serve a model, and what a refusal says of each bundle."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sie_bundle.bundles.placement import BundleView, Placement
from sie_bundle.bundles.reading import Bundle, read_bundles, shipped_bundles
from sie_bundle.bundles.registry import make_registry

from sie_core.catalog import build_catalog, families
from sie_core.catalog.configs.snapshot import profiles_of
from sie_core.contracts import (
    Claim,
    InferenceError,
    ModelCard,
    ModelConfig,
    ModelFamily,
    Profile,
    claim_architectures,
)
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginReport, PluginSet, discover
from sie_core.settings import Settings

BERT = ModelCard(Path(), {"model_type": "bert", "architectures": ["BertModel"]})


def family(name: str, claims: str = "BertModel", **more: Any) -> ModelFamily:
    return ModelFamily(name, f"pkg.{name}:load", claim_architectures(claims), **more)


def installed(**plugins: tuple[ModelFamily, ...]) -> PluginSet:
    """Plugins by their entry points, of the distributions `dist-…`."""
    reports = [
        PluginReport(
            name, f"dist-{name}", "1", name, "active", registers={"sie_model_families": tuple(f.id for f in own)}
        )
        for name, own in plugins.items()
    ]
    return PluginSet(reports=tuple(reports), families={each.id: each for own in plugins.values() for each in own})


def config(card: ModelCard | None = BERT, **paths: str | None) -> ModelConfig:
    """A model with a profile for each path, or with the default one alone."""
    profiles = {name: Profile(name, adapter_path=path) for name, path in (paths or {"default": None}).items()}
    return ModelConfig("org/m", hf_id="org/m", expected=card, profiles=profiles)


def bundles_of(placement: Placement, config: ModelConfig) -> tuple[str, ...]:
    (model,) = profiles_of(config)
    return placement.bundles_of(model)


PLUGINS = installed(encoders=(family("bert"), family("llama", "LlamaModel")), others=(family("other"),))
FIRST = Bundle("first", 1, ("encoders",))
SECOND = Bundle("second", 2, ("dist-others",))
NAMES = Bundle("names", 3, models=("org/m",))


def test_a_bundle_serves_what_its_families_claim_what_they_are_and_what_it_names() -> None:
    placement = Placement([FIRST, SECOND, NAMES], PLUGINS)
    assert bundles_of(placement, config()) == ("first", "second", "names")
    assert bundles_of(placement, config(default="other")) == ("second", "names")
    assert bundles_of(placement, config(None)) == ("names",)
    assert bundles_of(placement, config(None, default="llama")) == ("first", "names")


def test_a_bundle_of_every_model_serves_those_whose_config_names_no_family() -> None:
    placement = Placement([FIRST, Bundle("all", 9, models=("*",))], PLUGINS)
    assert bundles_of(placement, config()) == ("first", "all")
    assert bundles_of(placement, config(None)) == ("all",)
    assert bundles_of(placement, config(default="missing")) == ()


def test_a_distribution_stands_for_all_of_its_plugins() -> None:
    reports = [
        PluginReport(name, "Two_Plugins", "1", name, "active", registers={"sie_model_families": (name,)})
        for name in ("one", "two")
    ]
    known = PluginSet(reports=tuple(reports), families={"one": family("one"), "two": family("two", "LlamaModel")})
    placement = Placement([Bundle("b", plugins=("two-plugins",))], known)
    assert placement.views()[0].adapters == ("pkg.one", "pkg.two")
    assert bundles_of(placement, config(None, default="two")) == ("b",)


def test_a_class_path_of_another_server_is_only_a_hint() -> None:
    placement = Placement([FIRST, SECOND], PLUGINS)
    assert bundles_of(placement, config(default="other_server.bert:BertAdapter")) == ("first", "second")


def test_a_named_family_decides_over_claims() -> None:
    assert bundles_of(Placement([FIRST], PLUGINS), config(default="nobody")) == ()


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("org/m", {"default": ("b",), "fast": ("b",)}),
        ("org/m:default", {"default": ("b",), "fast": ("b",)}),
        ("org/m:fast", {"default": (), "fast": ("b",)}),
        ("org/other", {"default": (), "fast": ()}),
    ],
)
def test_a_bundle_names_all_profiles_of_a_model_by_its_bare_id_or_one(
    named: str, expected: dict[str, tuple[str, ...]]
) -> None:
    placement = Placement([Bundle("b", models=(named,))], PLUGINS)
    found = {model.profile.name: placement.bundles_of(model) for model in profiles_of(config(default=None, fast=None))}
    assert found == expected


def test_a_weightless_family_serves_by_its_name_alone() -> None:
    everything = ModelFamily("fake", "pkg.fake:load", lambda card: Claim("everything"), weightless=True)
    placement = Placement([Bundle("b", plugins=("fake",))], installed(fake=(everything,)))
    assert bundles_of(placement, config()) == ()
    assert bundles_of(placement, config(None, default="fake")) == ("b",)


def test_a_family_that_fails_claims_nothing_and_is_asked_again() -> None:
    failing = [True]

    def claims(card: ModelCard) -> Claim | None:
        if failing:
            raise RuntimeError("secret")
        return Claim("now")

    plugins = installed(bad=(ModelFamily("bad", "pkg.bad:load", claims),), good=(family("good"),))
    placement = Placement([Bundle("bad", plugins=("bad",)), Bundle("good", plugins=("good",))], plugins)
    assert bundles_of(placement, config()) == ("good",)
    assert plugins.reports_now()[0].state == "failing"
    failing.clear()
    assert bundles_of(placement, config()) == ("bad", "good")


def test_a_family_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def claims(card: ModelCard) -> Claim | None:
        go.wait(30)
        return None

    monkeypatch.setattr(families, "CLAIM_LIMIT_S", 0.05)
    plugins = installed(hung=(ModelFamily("hung", "pkg.hung:load", claims),))
    try:
        assert bundles_of(Placement([Bundle("b", plugins=("hung",))], plugins), config()) == ()
    finally:
        go.set()


def test_equal_cards_are_claimed_once_and_others_each_by_themselves() -> None:
    asked = []

    def claims(card: ModelCard) -> Claim | None:
        asked.append(card.model_type)
        return Claim("mine") if card.model_type == "bert" else None

    placement = Placement([Bundle("b", plugins=("a",))], installed(a=(ModelFamily("a", "pkg.a:load", claims),)))
    other = ModelCard(Path(), {"model_type": "llama"})
    found = [bundles_of(placement, config(card)) for card in (BERT, other, BERT, other)]
    assert found == [("b",), (), ("b",), ()]
    assert asked == ["bert", "llama"]


def test_adapters_are_the_modules_that_load_the_families_of_a_bundle() -> None:
    views = Placement([FIRST, Bundle("away", 7, ("absent",), source="file")], PLUGINS).views()
    assert views == [
        BundleView("first", 1, ("pkg.bert", "pkg.llama"), "pytorch"),
        BundleView("away", 7, (), "pytorch", "file"),
    ]


def test_every_profile_is_placed() -> None:
    placed = Placement([FIRST, SECOND], PLUGINS).place(config(default="llama", fast="other", auto=None))
    assert placed == {"default": ("first",), "fast": ("second",), "auto": ("first", "second")}


def test_a_model_of_no_bundle_is_refused_with_what_each_bundle_lacks() -> None:
    broken = PluginReport("vision", "dist-vision", "1", "vision", "broken", cause="No module named 'timm'")
    plugins = installed(encoders=(family("llama", "LlamaModel"),), runner=())
    plugins = PluginSet(reports=(*plugins.reports, broken), families=plugins.families)
    placement = Placement(
        [
            Bundle("text", plugins=("encoders",)),
            Bundle("away", plugins=("absent", "vision")),
            Bundle("bare", plugins=("runner",)),
        ],
        plugins,
    )
    with pytest.raises(InferenceError) as raised:
        placement.place(config(default=None, named="bert", fine="llama"))
    error = raised.value
    assert (error.code, error.spec.status, error.param) == ("VALIDATION_ERROR", 422, "profiles.default")
    unnamed = "its `models` do not name it, and"
    away = "its plugin absent is not installed here; its plugin vision is broken here: No module named 'timm'"
    unclaimed = "none of its families (llama) claims its weights (model type bert, architectures BertModel)"
    unregistered = "none of its plugins registers the family 'bert'"
    assert [(each["loc"], each["message"]) for each in error.details["details"]] == [
        ("profiles.default", f"text: {unnamed} {unclaimed}"),
        ("profiles.default", f"away: {unnamed} its plugins register no family; {away}"),
        ("profiles.default", f"bare: {unnamed} its plugins register no family"),
        ("profiles.named", f"text: {unregistered} (they register llama)"),
        ("profiles.named", f"away: {unregistered}; {away}"),
        ("profiles.named", f"bare: {unregistered}"),
    ]
    assert error.message.startswith("profiles.default of org/m: no bundle can serve it. text: its `models`")
    assert error.message.endswith("Name a family in `adapter_path` or name the model in the `models` of a bundle.")


def test_the_remedy_fits_what_the_config_says() -> None:
    placement = Placement([SECOND], PLUGINS)
    with pytest.raises(InferenceError, match=r"State in `weights` what its files will say \(`model_type`"):
        placement.place(config(None))
    with pytest.raises(InferenceError, match=r"Correct `adapter_path`, leave it out so that the weights decide"):
        placement.place(config(None, default="bertt"))
    with pytest.raises(InferenceError, match="there are no bundles"):
        Placement([], PLUGINS).place(config())


def test_every_model_that_ships_has_a_bundle_and_gliner_models_have_theirs() -> None:
    settings = Settings(plugins_blocked=("fake",))
    plugins = discover(settings, BUILTINS)
    placement = Placement(read_bundles(shipped_bundles()), plugins)
    shipped = [
        model
        for model in build_catalog(settings, plugins).models()
        if any(Path(model.config.source).is_relative_to(folder) for folder in plugins.model_folders)
    ]
    placed = {model.id: placement.bundles_of(model) for model in shipped}
    assert len(placed) > 100
    assert [name for name, bundles in placed.items() if not bundles] == []
    assert placed["BAAI/bge-m3"] == ("default", "gliner", "cpu")
    assert {name for name, bundles in placed.items() if bundles == ("gliner",)} == {
        model.id for model in shipped if "sie_gliner" in model.config.source
    }


def test_the_default_bundle_names_only_models_that_ship() -> None:
    settings = Settings()
    configs = build_catalog(settings, discover(settings, BUILTINS)).configs
    (default,) = (bundle for bundle in read_bundles(shipped_bundles()) if bundle.name == "default")
    assert [model for model in default.models if model not in configs] == []


def test_models_are_placed_where_the_plugins_libraries_are_not_installed() -> None:
    script = """
import json
import sys

BLOCKED = {
    "torch", "transformers", "sentence_transformers", "gliner", "tokenizers", "safetensors", "peft", "model2vec",
    "flash_attn", "nats", "obstore", "PIL",
}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())

from sie_core.catalog import build_catalog
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.reading import read_bundles, shipped_bundles
from sie_bundle.bundles.registry import make_registry
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings

settings = Settings(strict_plugins=True)
plugins = discover(settings, BUILTINS)
placement = Placement(read_bundles(shipped_bundles()), plugins)
registry = make_registry(build_catalog(settings, plugins), placement.views(), placement.bundles_of)
assert [str(each) for each in plugins.reports_now() if each.state != "active"] == []
assert BLOCKED.isdisjoint(sys.modules)
print(json.dumps([registry.bundles_hash, registry.config_hashes, registry.resolve("BAAI/bge-m3").bundle]))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    settings = Settings()
    plugins = discover(settings, BUILTINS)
    placement = Placement(read_bundles(shipped_bundles()), plugins)
    registry = make_registry(build_catalog(settings, plugins), placement.views(), placement.bundles_of)
    assert json.loads(done.stdout) == [registry.bundles_hash, registry.config_hashes, "default"]
