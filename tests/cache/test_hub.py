"""The Hub tier against a server that plays the Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from sie_core.cache import HUB_TIER, HubTier, LocalTier, WeightChain, build_chain
from sie_core.cache.hub.retries import HubRetries
from sie_core.contracts import ModelLoadError, TierContext, WeightRequest
from sie_core.contracts.model.weights import TOKENIZERS, PicklesMissing
from sie_core.plugins import PluginSet
from sie_core.serving.listening import reserve
from sie_core.settings import Settings, SettingsError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REQUEST = WeightRequest("org/m")
ONCE = HubRetries(budget_s=0)


@pytest.fixture
def tier(hub: Any, tmp_path: Path) -> HubTier:
    return HubTier(tmp_path / "cache", endpoint=hub.url, retries=ONCE)


def refusal(tier: HubTier, request: WeightRequest = REQUEST) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as raised:
        tier.fetch(request)
    assert str(tier.cache.folder) not in str(raised.value)
    assert "127.0.0.1" not in str(raised.value)
    return raised.value


def test_a_download_holds_what_serves_and_nothing_pickled(hub: Any, tier: HubTier) -> None:
    folder = tier.fetch(REQUEST)
    assert folder is not None
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt"}
    assert (folder / "model.safetensors").read_bytes() == hub.files["org/m"]["model.safetensors"]
    assert not any("pytorch_model.bin" in asked or "onnx" in asked for asked in hub.asked)


def test_pickles_that_a_config_pins_come_too_even_after_the_rest(hub: Any, tier: HubTier) -> None:
    hub.files["org/m"] |= {"head.pt": b"pickled head", "other.pt": b"another"}
    asked = WeightRequest("org/m", pickles=("head.pt", "elsewhere.pt"))
    local = LocalTier(tier.cache)
    assert tier.fetch(REQUEST) is not None
    with pytest.raises(PicklesMissing, match=r"lacks head\.pt and elsewhere\.pt"):
        local.fetch(asked)
    folder = WeightChain([local, tier]).fetch(asked)
    assert (folder / "head.pt").read_bytes() == b"pickled head"
    assert not (folder / "other.pt").exists()
    assert local.fetch(WeightRequest("org/m", pickles=("head.pt",))) == folder


def test_weights_are_served_without_pickles_that_no_tier_has(hub: Any, tier: HubTier) -> None:
    local = LocalTier(tier.cache)
    folder = tier.fetch(REQUEST)
    assert WeightChain([local]).fetch(WeightRequest("org/m", pickles=("head.pt",))) == folder


def test_the_hub_is_asked_for_the_model_and_nothing_else(hub: Any, tmp_path: Path) -> None:
    """In a process of its own: the client asks for what is not of the model once a process, or once a day."""
    script = (
        "import sys; from pathlib import Path; from sie_core.cache import HubTier; from sie_core.contracts import *;"
        "from sie_core.cache.hub.tier import ask_commit; request = WeightRequest('org/m');"
        "ask_commit(request, sys.argv[2]); HubTier(Path(sys.argv[1]), sys.argv[2]).fetch(request)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environ |= {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url}
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cache"), hub.url], env=environ, check=True, timeout=250
    )
    assert hub.asked
    assert [asked for asked in hub.asked if "org/m" not in asked] == []


def test_the_local_tier_finds_what_the_hub_tier_left_without_the_network(hub: Any, tier: HubTier) -> None:
    downloaded = tier.fetch(REQUEST)
    before = len(hub.asked)
    local = LocalTier(tier.cache.folder)
    assert local.fetch(REQUEST) == downloaded
    assert local.fetch(WeightRequest("org/m", COMMIT)) == downloaded
    assert local.fetch(WeightRequest("org/m", "v2")) is None
    assert len(hub.asked) == before


def test_a_pinned_commit_is_what_is_downloaded(tier: HubTier) -> None:
    folder = tier.fetch(WeightRequest("org/m", COMMIT))
    assert folder is not None
    assert folder.name == COMMIT


def test_an_unknown_repository_is_not_found(tier: HubTier) -> None:
    error = refusal(tier, WeightRequest("org/unknown"))
    assert error.failure == "NOT_FOUND"
    assert "org/unknown" in str(error)


def test_an_unknown_revision_is_not_found_and_named(tier: HubTier) -> None:
    error = refusal(tier, WeightRequest("org/m", "v9"))
    assert error.failure == "NOT_FOUND"
    assert "v9" in str(error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_repository_says_how_to_get_in(hub: Any, tier: HubTier, status: int) -> None:
    hub.failure = status, {"X-Error-Code": "GatedRepo"}
    error = refusal(tier)
    assert error.failure == "GATED"
    assert "HF_TOKEN" in str(error)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_failing_hub_is_a_network_error_with_its_status(hub: Any, tier: HubTier, status: int) -> None:
    hub.failure = status, {}
    error = refusal(tier)
    assert error.failure == "NETWORK"
    assert not error.permanent
    assert str(status) in str(error)


def test_a_refused_connection_is_a_network_error(hub: Any, tmp_path: Path) -> None:
    with reserve("127.0.0.1", 0) as (url, _):
        error = refusal(HubTier(tmp_path / "cache", endpoint=url))
    assert error.failure == "NETWORK"
    assert "could not be reached" in str(error)


def test_a_refused_connection_never_passes_off_a_partial_snapshot_as_whole(hub: Any, tier: HubTier) -> None:
    folder = tier.fetch(REQUEST)
    assert folder is not None
    (folder / "model.safetensors").unlink()
    with reserve("127.0.0.1", 0) as (url, _):
        assert refusal(HubTier(tier.cache, endpoint=url)).failure == "NETWORK"


def test_pickled_weights_are_refused_before_anything_is_downloaded(hub: Any, tier: HubTier) -> None:
    del hub.files["org/m"]["model.safetensors"]
    error = refusal(tier)
    assert error.failure == "CONFIG"
    assert "safetensors" in str(error)
    assert "refs/pr" in str(error)
    assert not any("/resolve/" in asked for asked in hub.asked)


def test_a_cache_that_cannot_be_written_is_a_storage_error(hub: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    error = refusal(HubTier(tmp_path / "file" / "cache", endpoint=hub.url))
    assert error.failure == "STORAGE"


def test_an_id_the_hub_does_not_allow_is_not_found(tier: HubTier) -> None:
    assert refusal(tier, WeightRequest("a/b/c")).failure == "NOT_FOUND"


def test_a_look_never_asks_the_network(hub: Any, tier: HubTier) -> None:
    assert tier.fetch(WeightRequest("org/m", peek=True)) is None
    assert hub.asked == []


def test_hf_hub_offline_is_respected_and_said(hub: Any, tier: HubTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in str(refusal(tier))
    assert hub.asked == []


def test_without_the_fallback_the_tier_is_left_out(tmp_path: Path) -> None:
    assert HUB_TIER.create(TierContext(Settings(hf_fallback=False, local_cache=tmp_path))) is None
    assert isinstance(HUB_TIER.create(TierContext(Settings(hf_fallback=True, local_cache=tmp_path))), HubTier)


@pytest.mark.parametrize(
    "endpoint", ["", "hub.local", "https://", "ftp://hub.local", "http://hub:port", "me:secret@hub"]
)
def test_an_address_of_the_hub_that_is_none_stops_the_start(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    with pytest.raises(SettingsError, match=r"HF_ENDPOINT='.*https://huggingface\.co") as raised:
        build_chain(Settings(), PluginSet(weight_tiers=(HUB_TIER,)))
    assert "secret" not in str(raised.value)
    assert build_chain(Settings(hf_fallback=False), PluginSet(weight_tiers=(HUB_TIER,))).tiers == ()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert build_chain(Settings(), PluginSet(weight_tiers=(HUB_TIER,))).tiers


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_a_token_that_cannot_be_sent_stops_the_start_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "hf_secret\n")  # the Hub's client drops line breaks
    assert build_chain(Settings(), PluginSet(weight_tiers=(HUB_TIER,))).tiers
    for value in ("hf_sécret", "hf_s\x01cret"):
        monkeypatch.setenv(name, value)
        with pytest.raises(SettingsError, match=f"{name}=") as raised:
            build_chain(Settings(), PluginSet(weight_tiers=(HUB_TIER,)))
        assert "cret" not in str(raised.value).replace("(a secret)", "")


def test_a_kept_token_that_cannot_be_sent_is_no_network_error(tier: HubTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: "hf_sécret")
    error = refusal(tier)
    assert (error.failure, error.permanent) == ("GATED", True)


def test_hf_endpoint_names_the_mirror_that_is_asked(hub: Any, tmp_path: Path) -> None:
    script = (
        "from sie_core.cache import build_chain, HUB_TIER; from sie_core.plugins import PluginSet;"
        "from sie_core.settings import load_settings; from sie_core.contracts import WeightRequest;"
        "chain = build_chain(load_settings(), PluginSet(weight_tiers=(HUB_TIER,)));"
        "print(chain.fetch(WeightRequest('org/m')))"
    )
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("HF_", "SIE_"))},
        "HF_ENDPOINT": hub.url,
        "SIE_LOCAL_CACHE": str(tmp_path / "mirror"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / "model.safetensors").is_file()
    assert done.stdout.startswith(str(tmp_path / "mirror"))


PICKLED = WeightRequest("org/m", pickles=("pytorch_model.bin",))


def test_pinned_weights_come_where_there_are_no_others_and_the_tier_finds_them(hub: Any, tier: HubTier) -> None:
    del hub.files["org/m"]["model.safetensors"]
    with pytest.raises(ModelLoadError, match=r"pickled weights only.*sie models pin ID --pickles") as raised:
        tier.fetch(REQUEST)
    assert raised.value.failure == "CONFIG"
    folder = tier.fetch(PICKLED)
    assert folder is not None
    assert (folder / "pytorch_model.bin").read_bytes() == b"pickled"
    local = LocalTier(tier.cache)
    assert local.fetch(PICKLED) == folder
    assert WeightChain([local]).find(PICKLED) == ("local", folder)
    assert WeightChain([local]).find(REQUEST) is None
    with pytest.raises(ModelLoadError, match="only where the model's config pins them"):
        local.fetch(REQUEST)
    (folder / "pytorch_model.bin").resolve().write_bytes(b"another")
    with pytest.raises(ModelLoadError, match=r"pytorch_model\.bin .* has the hash"):
        LocalTier(tier.cache).fetch(PICKLED)
    assert tier.fetch(PICKLED) == folder
    assert (folder / "pytorch_model.bin").read_bytes() == b"pickled"


def test_pinned_weights_are_not_fetched_beside_safetensors(hub: Any, tier: HubTier) -> None:
    folder = tier.fetch(PICKLED)
    assert folder is not None
    assert not (folder / "pytorch_model.bin").exists()
    assert LocalTier(tier.cache).fetch(PICKLED) == folder


def test_a_copy_that_was_converted_serves_as_the_weights(hub: Any, tier: HubTier) -> None:
    converted = hub.files["org/m"].pop("model.safetensors")
    folder = tier.fetch(PICKLED)
    assert folder is not None
    (folder / "model.safetensors").write_bytes(converted)
    hub.asked.clear()
    local = LocalTier(tier.cache)
    assert WeightChain([local, tier]).fetch(PICKLED) == folder
    assert local.fetch(REQUEST) == folder
    assert hub.asked == []


def test_the_small_files_of_a_repository_come_without_its_weights(hub: Any, tier: HubTier) -> None:
    hub.files["org/m"]["model.safetensors.index.json"] = b'{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'
    small = WeightRequest("org/m", weights=TOKENIZERS)
    folder = tier.fetch(small)
    assert folder is not None
    names = {file.name for file in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "vocab.txt", "model.safetensors.index.json"}
    assert LocalTier(tier.cache).fetch(small) == folder
    with pytest.raises(ModelLoadError, match="not whole"):
        LocalTier(tier.cache).fetch(REQUEST)


def test_the_weights_of_a_repository_come_after_its_small_files(hub: Any, tier: HubTier) -> None:
    folder = tier.fetch(WeightRequest("org/m", weights=TOKENIZERS))
    assert folder is not None
    assert not (folder / "model.safetensors").exists()
    assert WeightChain([LocalTier(tier.cache), tier]).fetch(REQUEST) == folder
    assert (folder / "model.safetensors").is_file()
