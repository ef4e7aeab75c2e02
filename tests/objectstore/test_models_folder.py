"""Model configs in a real S3 gateway: what is read and when, what one may not say there, and errors at the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from sie_objectstore.plugin import sie_object_stores
from sie_objectstore.store import BucketStore

from sie_core.catalog import Catalog, build_catalog, open_folder
from sie_core.catalog.configs.reading import LARGEST_CONFIG
from sie_core.catalog.sources.store_folder import StoreFolder
from sie_core.catalog.sources.watcher import CatalogWatch
from sie_core.cli import main
from sie_core.contracts import PluginError
from sie_core.plugins import PluginSet
from sie_core.settings import SettingsError, load_settings
from tests.conftest import run_server
from tests.objectstore.conftest import Impatient
from tests.objectstore.proxy import Faults
from tests.server.asking import fake_config

PLUGINS = PluginSet(object_stores={each.scheme: each for each in sie_object_stores()})


@pytest.fixture
def build(store: BucketStore, tmp_path: Path) -> Callable[..., Catalog]:
    """Build the catalog of the configs in the store, as one server does again and again."""
    folder = StoreFolder(store, 1.0)
    settings = load_settings(models_dir=store.url, local_cache=tmp_path / "cache")
    return lambda before=None: build_catalog(settings, PLUGINS, folder=folder, before=before)


def read(proxy: Faults) -> list[str]:
    """Name the configs that were read since the last time."""
    asked = [each.split()[1].rpartition("/")[2] for each in proxy.asked if each.startswith("GET") and ".y" in each]
    proxy.asked.clear()
    return sorted(asked)


def test_only_what_is_new_or_changed_is_read(store: BucketStore, proxy: Faults, build: Callable[..., Catalog]) -> None:
    store.write("a.yaml", fake_config("a", 4).encode())
    store.write("b.yml", fake_config("b", 4).encode())
    first = build()
    assert list(first.entries) == ["test/a", "test/b"]
    assert read(proxy) == ["a.yaml", "b.yml"]
    store.write("b.yml", fake_config("b", 5).encode())
    store.write("c.yaml", fake_config("c", 4).encode())
    second = build(first)
    assert second.entries["test/b"].config.tasks == {"encode": {"dense": {"dim": 5}}}
    assert second.entries["test/b"].config.source == f"{store.url}/b.yml"
    assert (second.epoch, second.stamp == first.stamp) == (2, False)
    assert read(proxy) == ["b.yml", "c.yaml"]
    store.delete("a.yaml")
    third = build(second)
    assert list(third.entries) == ["test/b", "test/c"]
    assert build(third).stamp == third.stamp
    assert read(proxy) == []


def test_profiles_extend_and_the_first_of_two_files_with_one_id_is_served(
    store: BucketStore, build: Callable[..., Catalog]
) -> None:
    small = "profiles:\n  small: { extends: default, max_batch_tokens: 64 }"
    store.write("1.yaml", fake_config("a", 4).replace("profiles:", small).encode())
    store.write("2.yaml", fake_config("a", 5).encode())
    catalog = build()
    assert list(catalog.entries) == ["test/a", "test/a:small"]
    assert catalog.entries["test/a:small"].profile.adapter_path == "fake"
    assert catalog.entries["test/a"].config.tasks == {"encode": {"dense": {"dim": 4}}}
    (problem,) = catalog.problems
    assert problem.source == f"{store.url}/2.yaml"


def test_configs_lie_at_the_top_and_nothing_below_is_even_listed(
    store: BucketStore, proxy: Faults, build: Callable[..., Catalog]
) -> None:
    store.write("a.yaml", fake_config("a", 4).encode())
    store.write("notes.txt", b"for people")
    store.write("old/b.yaml", fake_config("b", 4).encode())
    assert list(build().entries) == ["test/a"]
    assert read(proxy) == ["a.yaml"]
    assert all("delimiter=" in each for each in proxy.asked)


def test_a_broken_config_keeps_what_it_said_and_stops_no_other(
    store: BucketStore, build: Callable[..., Catalog]
) -> None:
    store.write("a.yaml", fake_config("a", 4).encode())
    first = build()
    store.write("a.yaml", b"sie_id: [")
    store.write("b.yaml", b"\xff")
    store.write("c.yaml", fake_config("c", 4).encode())
    store.write("d.yaml", b" " * (LARGEST_CONFIG + 1))
    second = build(first)
    assert list(second.entries) == ["test/a", "test/c"]
    told = {problem.source.rpartition("/")[2]: problem.message for problem in second.problems}
    assert set(told) == {"a.yaml", "b.yaml", "d.yaml"}
    assert "not valid YAML" in told["a.yaml"]
    assert told["a.yaml"].endswith("What it said before is served on.")
    assert "cannot be read" in told["b.yaml"]
    assert f"{LARGEST_CONFIG + 1} bytes" in told["d.yaml"]
    assert second.note is not None
    assert "a.yaml, b.yaml, d.yaml" in second.note


def test_paths_of_weights_are_whole(store: BucketStore, build: Callable[..., Catalog], tmp_path: Path) -> None:
    store.write("whole.yaml", f"sie_id: whole\nweights_path: {tmp_path}/weights\n".encode())
    store.write("beside.yaml", b"sie_id: beside\nweights_path: ./weights\n")
    catalog = build()
    assert catalog.entries["whole"].config.weights_path == f"{tmp_path}/weights"
    (problem,) = catalog.problems
    assert problem.source.endswith("/beside.yaml")
    assert "'./weights'" in problem.message
    assert "SIE_CLUSTER_CACHE" in problem.message


def test_half_of_the_requests_may_fail(store: BucketStore, proxy: Faults, build: Callable[..., Catalog]) -> None:
    for name in "abcd":
        store.write(f"{name}.yaml", fake_config(name, 4).encode())
    proxy.every_other_fails = True
    assert list(build().entries) == [f"test/{name}" for name in "abcd"]
    assert proxy.failed >= 3


def test_a_store_that_is_gone_cannot_be_read_and_the_next_time_can(
    proxy: Faults, bucket: str, impatient: Impatient, tmp_path: Path
) -> None:
    settings = load_settings(models_dir=bucket, local_cache=tmp_path / "cache")
    folder = StoreFolder(impatient(bucket), 1.0)
    proxy.gone = True
    with pytest.raises(SettingsError, match=f"SIE_MODELS_DIR: {bucket} cannot be reached.*AWS_ENDPOINT_URL") as raised:
        build_catalog(settings, PLUGINS, folder=folder)
    assert "127.0.0.1" not in str(raised.value)
    proxy.gone = False
    assert build_catalog(settings, PLUGINS, folder=folder).problems == ()


async def test_looks_become_rarer_while_the_store_is_gone_and_a_change_is_looked_at_twice(
    proxy: Faults, bucket: str, impatient: Impatient, tmp_path: Path
) -> None:
    settings = load_settings(models_dir=bucket, local_cache=tmp_path / "cache")
    store = impatient(bucket)
    folder = StoreFolder(store, 10.0)
    served = [build_catalog(settings, PLUGINS, folder=folder)]
    told: list[str | None] = []
    watch = CatalogWatch(
        folder,
        lambda before: build_catalog(settings, PLUGINS, folder=folder, before=before),
        lambda: served[-1],
        served.append,
        told.append,
    )

    async def looks(count: int) -> list[float]:
        pauses = []
        for _ in range(count):
            await watch.look()
            pauses.append(watch.pause_s())
        return pauses

    assert await looks(2) == [10, 10]
    proxy.gone = True
    assert await looks(5) == [20, 40, 80, 80, 80]
    assert str(told[-1]).startswith(f"SIE_MODELS_DIR: {bucket} cannot be reached")
    proxy.gone = False
    assert await looks(1) == [10]
    assert told[-1] is None
    store.write("a.yaml", fake_config("a", 4).encode())
    assert await looks(2) == [1, 10]
    assert [list(catalog.entries) for catalog in served] == [[], ["test/a"]]


def test_a_server_with_wrong_credentials_ends_at_once_and_names_the_variables(proxy: Faults, tmp_path: Path) -> None:
    env = {"SIE_MODELS_DIR": "s3://weights/models", "AWS_SECRET_ACCESS_KEY": "wrong", "SIE_PLUGINS": "objectstore"}
    ended = r"ended with 2:(?s:.*)SIE_MODELS_DIR: s3://weights/models refuses these credentials.*AWS_SECRET_ACCESS_KEY"
    with pytest.raises(RuntimeError, match=ended), run_server(tmp_path, env):
        pass


def test_no_config_is_pinned_into_a_store(store: BucketStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIE_MODELS_DIR", store.url)
    store.write("own.yaml", b"sie_id: own/model\nhf_id: own/model\n")
    shipped = CliRunner().invoke(main, ["models", "pin", "BAAI/bge-m3"])
    assert (shipped.exit_code, "is an object store: name a local folder by --dir" in shipped.output) == (1, True)
    own = CliRunner().invoke(main, ["models", "pin", "own/model", "--dir", str(tmp_path)])
    assert (own.exit_code, f"its config is {store.url}/own.yaml" in own.output) == (1, True)


def test_a_bucket_that_is_not_there_is_named(proxy: Faults) -> None:
    with pytest.raises(SettingsError, match="SIE_MODELS_DIR: s3://none/models is not there: check the bucket's name"):
        open_folder(load_settings(models_dir="s3://none/models"), PLUGINS).stamp()


def test_a_missing_plugin_is_named() -> None:
    settings = load_settings(models_dir="gs://bucket/models")
    with pytest.raises(
        PluginError, match=r"SIE_MODELS_DIR='gs://bucket/models'.*Install one that registers an object store"
    ):
        build_catalog(settings, PluginSet())


def test_a_url_that_cannot_be_used_is_named() -> None:
    with pytest.raises(PluginError, match="SIE_MODELS_DIR='s3://' cannot be used"):
        build_catalog(load_settings(models_dir="s3://"), PLUGINS)
