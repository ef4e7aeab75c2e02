"""A weight tier and a store of objects written outside the tree: they serve without a line of the core."""

from __future__ import annotations

import sys

import pytest

from tests.cache.fake_hub import FILES
from tests.plugins.outside import environment, run
from tests.server.asking import fake_config

BUILT_IN = "sie_core.defaults.hub_tier"
COMMIT = "5" * 40


@pytest.fixture
def command(install, tmp_path):
    """Runs `sie` with both parts installed, in place of the built-in Hub."""
    shelf = tmp_path / "shelf/org/m"
    shelf.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (shelf / name).write_bytes(FILES[name])

    def command(*arguments: str, machine: str, **variables: str):
        chosen = {
            "SIE_PLUGINS_BLOCKED": BUILT_IN,
            "SIE_LOCAL_CACHE": str(tmp_path / machine),
            "SIE_CLUSTER_CACHE": f"folder://{tmp_path / 'store'}",
            **variables,
        }
        executable = [sys.executable, "-c", "from sie_core.cli import main; main(prog_name='sie')"]
        return run([*executable, *arguments], tmp_path, environment(install("outside_weights"), **chosen))

    return command


def test_the_tier_serves_and_the_store_is_filled_and_serves_another_machine(command, tmp_path):
    done = command("cache", "pull", "org/m", machine="one", SIE_CLUSTER_CACHE_FILL="true")
    assert done.returncode == 0, done.stderr
    stored = {file.name for file in (tmp_path / "store/models/org/m" / COMMIT).rglob("*") if file.is_file()}
    assert stored == {"manifest.json", "config.json", "model.safetensors", "tokenizer.json"}
    (tmp_path / "shelf").rename(tmp_path / "gone")

    done = command("cache", "pull", "org/m", machine="two")
    assert done.returncode == 0, done.stderr
    weights = tmp_path / "two/models--org--m/snapshots" / COMMIT / "model.safetensors"
    assert weights.read_bytes() == FILES["model.safetensors"]


def test_the_store_holds_the_models_folder_too(command, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/m.yaml").write_text(fake_config("stored", 4))
    done = command("models", "show", "test/stored", machine="one", SIE_MODELS_DIR=f"folder://{tmp_path / 'configs'}")
    assert done.returncode == 0, done.stderr
    assert f"folder://{tmp_path / 'configs'}/m.yaml" in done.stdout


def test_without_either_the_error_names_what_each_said(command):
    done = command("cache", "pull", "org/none", machine="one")
    assert done.returncode == 1
    assert "cluster: does not have it" in done.stderr
    assert "hub: the shelf has no org/none" in done.stderr


def test_beside_the_built_in_tier_it_is_broken_and_the_way_out_is_named(sie, install):
    done = sie("plugins", site=install("outside_weights"))
    assert done.returncode == 1
    assert "registers the weight tier 'hub', and so does plugin" in done.stdout
    assert f"SIE_PLUGINS_BLOCKED={BUILT_IN}" in done.stdout
