"""A registry that was changed model by model equals one that was made of the same models at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sie_bundle.bundles.changing import changed_registry
from sie_bundle.bundles.placement import BundleView
from sie_bundle.bundles.registry import Registry, make_registry

from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import Problem, make_catalog
from sie_core.contracts import ModelConfig, ResolvedModel

BUNDLES = [BundleView("slow", 9, ("pkg.slow",)), BundleView("fast", 1, ("pkg.fast",)), BundleView("empty", 5)]


def config(id_: str, pool: str = "default", profiles: Sequence[str] = ("default",), **profile: object) -> ModelConfig:
    written = ", ".join(f"{name}: {profile}" for name in profiles)
    text = f"sie_id: {id_}\nhf_id: {id_}\npool: {pool}\nprofiles: {{{written}}}"
    return config_of(text.encode(), source=id_, folder=None)


def bundles_of(model: ResolvedModel) -> Sequence[str]:
    """By the profile: `q` is served by one of them, `none` by none."""
    return {"q": ("slow",), "none": ()}.get(model.profile.name, ("fast", "slow"))


def made(configs: Mapping[str, ModelConfig], epoch: int, epochs: Mapping[str, int] | None = None) -> Registry:
    return make_registry(replace(make_catalog(1, configs.values()), config_epoch=epoch), BUNDLES, bundles_of, epochs)


def by_profile(config: ModelConfig | None) -> Mapping[str, Sequence[str]]:
    return (
        {}
        if config is None
        else {name: bundles_of(ResolvedModel("", config, profile)) for name, profile in config.profiles.items()}
    )


CONFIGS = st.builds(
    config,
    st.sampled_from(["org/a", "org/B", "org/c"]),
    st.sampled_from(["default", "l4"]),
    st.sampled_from([("default",), ("default", "q"), ("q",), ("none",), ("none", "default")]),
    max_batch_tokens=st.sampled_from([1, 2]),
)


@settings(deadline=None)
@given(st.lists(CONFIGS | st.sampled_from(["org/a", "org/B"]), max_size=8))
def test_changes_one_by_one_give_what_the_models_together_give(changes: list[ModelConfig | str]) -> None:
    configs: dict[str, ModelConfig] = {}
    epochs: dict[str, int] = {}
    registry = made(configs, 0)
    for epoch, change in enumerate(changes, 1):
        model_id, changed = (change, None) if isinstance(change, str) else (change.id, change)
        configs.pop(model_id, None)
        epochs.pop(model_id, None)
        if changed is not None:
            configs[model_id], epochs[model_id] = changed, epoch
        after = changed_registry(registry, model_id, changed, by_profile(changed), epoch=epoch)
        assert after is not None
        whole = made(configs, epoch, epochs)
        assert replace(after, catalog=whole.catalog) == whole
        assert list(after.catalog.entries.items()) == list(whole.catalog.entries.items())
        assert (after.catalog.configs, after.catalog.config_epoch) == (whole.catalog.configs, epoch)
        assert after.catalog.epoch == registry.catalog.epoch + 1
        registry = after


def test_a_model_that_is_not_served_here_counts_for_the_hashes_and_has_no_route() -> None:
    before, added = made({}, 1), config("org/a")
    after = changed_registry(before, "org/a", added, by_profile(added), epoch=2, serves=lambda model: False)
    assert after is not None
    assert (dict(after.routes), dict(after.catalog.entries)) == ({}, {})
    assert after.config_hashes == made({"org/a": added}, 2).config_hashes


@pytest.mark.parametrize("added", [config("org/a:q"), config("org/b")], ids=lambda config: config.id)
def test_an_id_listed_twice_or_a_model_that_cannot_be_served_is_left_to_a_whole_registry(added: ModelConfig) -> None:
    if added.id == "org/b":
        added = replace(added, unserved="it is too large")
    before = made({"org/a": config("org/a", profiles=("default", "q"))}, 1)
    assert changed_registry(before, added.id, added, by_profile(added), epoch=2) is None


def test_problems_of_others_stay_and_those_of_the_model_itself_are_left_to_a_whole_registry() -> None:
    problems = (Problem("models/broken.yaml", "it is no YAML"), Problem("config service: org/b", "no such field"))
    before = made({"org/a": config("org/a")}, 1)
    before = replace(before, catalog=replace(before.catalog, problems=problems))
    added = config("org/c")
    after = changed_registry(before, "org/c", added, by_profile(added), epoch=2)
    assert after is not None
    assert after.catalog.problems == problems
    repaired = config("org/b")
    assert changed_registry(before, "org/b", repaired, by_profile(repaired), epoch=2) is None
