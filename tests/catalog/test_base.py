"""What a config service starts from: what plugins ship and the models folder holds, nothing of this machine alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sie_cluster.messages.export import exported_content

from sie_core.catalog import build_base
from sie_core.plugins import PluginSet
from sie_core.settings import Settings
from tests.catalog.test_building import cached_snapshot


def test_it_holds_what_every_machine_can_have_whatever_this_one_would_serve(
    settings_with: Callable[..., Settings], write_config: Callable[..., Path], write_weights: Callable[..., Path]
) -> None:
    write_config("shipped", "{sie_id: org/shipped, hf_id: org/shipped}", folder="shipped")
    write_config("mine", "{sie_id: org/mine, hf_id: org/mine, profiles: {default: {}, q: {}}}")
    settings = settings_with(model_filter=("org/none",), preload_models=("org/none",))
    cached_snapshot(Path(settings.local_cache), "org/cached", write_weights(Path("weights")))
    base = build_base(settings, PluginSet(model_folders=(Path("shipped"),)))
    assert list(base.entries) == ["org/mine", "org/mine:q", "org/shipped"]
    assert base.config_epoch is None
    again = build_base(settings, PluginSet(model_folders=(Path("shipped"),)), before=base)
    assert (again.epoch, again.stamp) == (base.epoch + 1, base.stamp)


def test_weights_in_the_models_folder_say_what_they_are_and_are_exported_with_their_place(
    settings_with: Callable[..., Settings], write_config: Callable[..., Path], write_weights: Callable[..., Path]
) -> None:
    settings = settings_with()
    write_config("named", "{sie_id: org/named, hf_id: org/named}")
    places = {name: str(write_weights(Path("models") / name).absolute()) for name in ("org/named", "org/found")}
    base = build_base(settings, PluginSet())
    assert list(base.entries) == ["org/found", "org/named"]
    for name, config in base.configs.items():
        assert config.expected is not None
        assert config.expected.model_type == "bert"
        assert exported_content(config)["weights_path"] == places[name]


def test_a_file_that_became_unreadable_is_served_as_it_was(
    settings_with: Callable[..., Settings], write_config: Callable[..., Path]
) -> None:
    settings = settings_with()
    write_config("a", "{sie_id: org/a, hf_id: org/a}")
    base = build_base(settings, PluginSet())
    write_config("a", "{sie_id: org/a")
    again = build_base(settings, PluginSet(), before=base)
    assert list(again.entries) == ["org/a"]
    assert len(again.problems) == 1
