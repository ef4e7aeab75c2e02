"""A weight tier and a store of objects written outside the tree: they serve without a line of the core."""

from __future__ import annotations

import sys

import pytest

from tests.cache.fake_hub import FILES
from tests.plugins.outside import environment, run

BUILT_IN = "sie_core.defaults.hub_tier"
COMMIT = "5" * 40


@pytest.fixture
def cache_command(install, tmp_path):
    """Runs `sie cache` with both parts installed, in place of the built-in Hub."""
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
        executable = [sys.executable, "-c", "from sie_core.cli import main; main(prog_name='sie')", "cache"]
        return run([*executable, *arguments], tmp_path, environment(install("outside_weights"), **chosen))

    return command


def test_the_tier_serves_and_the_store_is_filled_and_serves_another_machine(cache_command, tmp_path):
    done = cache_command("pull", "org/m", machine="one", SIE_CLUSTER_CACHE_FILL="true")
    assert done.returncode == 0, done.stderr
    stored = {file.name for file in (tmp_path / "store/models/org/m" / COMMIT).rglob("*") if file.is_file()}
    assert stored == {"manifest.json", "config.json", "model.safetensors", "tokenizer.json"}
    (tmp_path / "shelf").rename(tmp_path / "gone")

    done = cache_command("pull", "org/m", machine="two")
    assert done.returncode == 0, done.stderr
    weights = tmp_path / "two/models--org--m/snapshots" / COMMIT / "model.safetensors"
    assert weights.read_bytes() == FILES["model.safetensors"]


def test_without_either_the_error_names_what_each_said(cache_command):
    done = cache_command("pull", "org/none", machine="one")
    assert done.returncode == 1
    assert "cluster: does not have it" in done.stderr
    assert "hub: the shelf has no org/none" in done.stderr


def test_beside_the_built_in_tier_it_stops_the_start_and_the_way_out_is_named(sie, install):
    done = sie("plugins", site=install("outside_weights"))
    assert done.returncode != 0
    assert "two plugins register the weight tier 'hub'" in done.stderr
    assert f"SIE_PLUGINS_BLOCKED={BUILT_IN}" in done.stderr
