"""Which models of the Hub a server looks up, and for whom."""

from __future__ import annotations

import asyncio

import pytest

from sie_core.cache.hub.tier import HubTier
from sie_core.catalog import build_catalog
from sie_core.catalog.sources.hub_models import HubModels, serves_any
from sie_core.contracts import Device, InferenceError, ModelLoadError
from sie_core.plugins import PluginSet
from sie_core.settings import Settings, SettingsError


@pytest.mark.parametrize(
    ("settings", "serves"),
    [
        ({"http_host": "127.0.0.1"}, True),
        ({"http_host": "localhost"}, True),
        ({"http_host": "::1"}, True),
        ({"http_host": "0.0.0.0"}, False),
        ({"http_host": "sie.example.org"}, False),
        ({"http_host": "0.0.0.0", "serve_any_model": True}, True),
        ({"http_host": "127.0.0.1", "serve_any_model": False}, False),
    ],
)
def test_clients_may_name_any_model_on_loopback_or_where_that_is_set(settings, serves) -> None:
    assert serves_any(Settings(**settings)) is serves


class Asked:
    """Counts look-ups on the Hub; each finds nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
        self.count, self.now = 0, 0.0
        self.catalog = build_catalog(settings, PluginSet())
        self.models = HubModels(settings, PluginSet(), Device("cpu"), lambda: self.now)
        monkeypatch.setattr(HubTier, "describe", self.describe)

    def describe(self, request, into) -> None:
        self.count += 1
        raise ModelLoadError("NOT_FOUND", f"there is no repository {request.repo_id}")

    def code(self, model: str, *, named: bool) -> tuple[str, str]:
        with pytest.raises(InferenceError) as raised:
            asyncio.run(self.models.find(model, self.catalog, named=named))
        return raised.value.code, raised.value.message


def test_where_clients_may_not_the_operator_may_and_the_error_says_how(monkeypatch, tmp_path) -> None:
    asked = Asked(monkeypatch, Settings(local_cache=tmp_path, models_dir=tmp_path, http_host="0.0.0.0"))
    code, message = asked.code("org/m", named=False)
    assert (code, asked.count) == ("MODEL_NOT_FOUND", 0)
    assert "`sie serve org/m`" in message
    assert "`hf_id: org/m`" in message
    assert asked.code("org/m", named=True)[0] == "MODEL_LOAD_FAILED"
    assert asked.count == 1


def test_what_the_hub_lacks_is_asked_for_again_after_a_while(monkeypatch, tmp_path) -> None:
    asked = Asked(monkeypatch, Settings(local_cache=tmp_path, models_dir=tmp_path))
    for now, count in ((0.0, 1), (29.0, 1), (31.0, 2)):
        asked.now = now
        assert asked.code("org/m", named=False)[0] == "MODEL_NOT_FOUND"
        assert asked.count == count


@pytest.mark.parametrize("model", ["plain", "org/m:profile", "a/b/c"])
def test_names_that_no_repository_has_are_not_asked_for(monkeypatch, tmp_path, model) -> None:
    asked = Asked(monkeypatch, Settings(local_cache=tmp_path, models_dir=tmp_path))
    assert asyncio.run(asked.models.find(model, asked.catalog, named=True)) is None
    assert asked.count == 0


def test_a_filter_keeps_out_what_it_does_not_name(monkeypatch, tmp_path) -> None:
    asked = Asked(monkeypatch, Settings(local_cache=tmp_path, models_dir=tmp_path))
    asked.models = HubModels(Settings(local_cache=tmp_path, model_filter=("org/n",)), PluginSet(), Device("cpu"))
    assert asyncio.run(asked.models.find("org/m", asked.catalog, named=True)) is None
    assert asked.count == 0


def test_the_hub_is_not_asked_for_a_model_whose_own_config_is_broken(monkeypatch, tmp_path) -> None:
    (tmp_path / "m.yaml").write_text("sie_id: org/m\nhf_id: org/m\nhf_revison: abc\n")
    settings = Settings(local_cache=tmp_path / "cache", models_dir=tmp_path)
    asked = Asked(monkeypatch, settings)
    assert asyncio.run(asked.models.find("org/m", asked.catalog, named=False)) is None
    assert asked.count == 0
    with pytest.raises(InferenceError, match=r"m\.yaml: line 3: `hf_revison` is no field"):
        asked.catalog.resolve("org/m")
    with pytest.raises(SettingsError, match=r"SIE_PRELOAD_MODELS=org/m: org/m is not served: m\.yaml: line 3"):
        build_catalog(settings.model_copy(update={"preload_models": ("org/m",)}), PluginSet(), hub=True)


def test_a_name_near_that_of_a_broken_config_gets_it_and_the_files_without_a_name(monkeypatch, tmp_path) -> None:
    (tmp_path / "m.yaml").write_text("sie_id: org/search\nhf_id: [x\n")
    (tmp_path / "nameless.yaml").write_text("sie_id org/other\n")
    asked = Asked(monkeypatch, Settings(local_cache=tmp_path / "cache", models_dir=tmp_path, http_host="0.0.0.0"))
    _, message = asked.code("org/serch", named=False)
    assert "Did you mean org/search?" in message
    assert "nameless.yaml" in message
    with pytest.raises(InferenceError, match=r"Did you mean org/search\?.*nameless\.yaml"):
        asked.catalog.resolve("org/serch")
