"""The programs of a cluster find one another in folders of any length, and leave nothing outside of them."""

from __future__ import annotations

import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr
from sie_bundle.bundles.reading import read_bundles, shipped_bundles
from sie_cluster.ipc.listening import listen_on
from sie_cluster.local.bundles import local_bundles
from sie_cluster.local.programs import describe_programs
from sie_cluster.local.up import run_cluster
from sie_cluster.settings import ClusterSettings

from sie_core.contracts import PluginError
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import SettingsError, load_settings


@pytest.mark.parametrize("length", [70, 91, 92, 97, 99, 100, 140])
def test_workers_can_listen_on_their_sockets(length: int) -> None:
    with tempfile.TemporaryDirectory() as short:
        folder = Path(short) / ("f" * (length - len(short) - 1))
        folder.mkdir()
        settings = ClusterSettings()
        with ExitStack() as files:
            plugins = discover(settings, BUILTINS)
            bundles = local_bundles(settings, plugins, folder, ())
            programs = describe_programs(settings, plugins, folder, 12, files, bundles=bundles, config_port=1)
            paths = [Path(worker._variables["SIE_IPC_SOCKET_PATH"]) for worker in programs.workers]
            for path in paths:
                listen_on(path).close()
        assert len(set(paths)) == 12
        assert all(path.parent == folder or not path.parent.exists() for path in paths)


@pytest.mark.parametrize("there", ["sie", "sie/cluster/nats.conf/x"])
def test_a_folder_that_cannot_be_written_to_is_named_with_the_reason(tmp_path: Path, there: str) -> None:
    """A file is where a folder is to be, or a folder where a file is."""
    file = tmp_path / there
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    folder, settings = tmp_path / "sie/cluster", ClusterSettings(http_port=0)
    plugins = discover(settings, BUILTINS)
    with pytest.raises(
        PluginError, match=r"/sie/cluster cannot be written to \(.*; name another folder with --folder\."
    ):
        run_cluster(settings, plugins, folder, 1, lambda *_: None, None)


def test_one_bundle_serves_all_models_unless_some_are_asked_for(tmp_path: Path) -> None:
    plugins = discover(ClusterSettings(), BUILTINS)
    for name in ("first", "second"):
        one = local_bundles(ClusterSettings(bundle=name), plugins, tmp_path, ())
        (bundle,) = read_bundles(one.folder)
        assert one.names == (name,) == (bundle.name,)
        assert (bundle.models, {"pytorch", "gliner", "fake"} <= set(bundle.plugins)) == (("*",), True)
    two = local_bundles(ClusterSettings(), plugins, tmp_path, ("default", "gliner"))
    assert (two.names, two.folder) == (("default", "gliner"), shipped_bundles().absolute())
    with pytest.raises(SettingsError, match=r"--bundles nobody: .* there are default, gliner, sglang, cpu\."):
        local_bundles(ClusterSettings(), plugins, tmp_path, ("nobody",))


def test_the_token_that_writes_is_the_config_services_alone_and_the_models_folder_too(tmp_path: Path) -> None:
    settings = ClusterSettings(admin_token=SecretStr("secret"), models_dir=tmp_path / "models")
    plugins = discover(settings, BUILTINS)
    bundles = local_bundles(settings, plugins, tmp_path, ())
    with ExitStack() as files:
        programs = describe_programs(settings, plugins, tmp_path, 1, files, bundles=bundles, config_port=1)
    config, *others = [each._variables for each in (programs.config, programs.gateway, *programs.workers)]
    assert (config["SIE_ADMIN_TOKEN"], config["SIE_MODELS_DIR"]) == ("secret", str(tmp_path / "models"))
    for each in others:
        assert (each["SIE_ADMIN_TOKEN"], each["SIE_MODELS_DIR"]) == ("", "")
        assert each["SIE_CONFIG_SERVICE_URL"] == "http://127.0.0.1:1"
        assert each["SIE_CONFIG_READ_TOKEN"] == config["SIE_CONFIG_READ_TOKEN"] != "secret"
    assert (tmp_path / "admin-token").read_text() == "secret\n"
    assert stat.S_IMODE((tmp_path / "admin-token").stat().st_mode) == 0o600


def test_secrets_that_lie_in_files_reach_the_programs_whose_they_are_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ADMIN_TOKEN", "POOL_TOKEN", "AUTH_TOKEN"):
        (tmp_path / name).write_text(name.lower())
        monkeypatch.setenv(f"SIE_{name}_FILE", str(tmp_path / name))
    settings = load_settings(ClusterSettings, auth_mode="token")
    plugins = discover(settings, BUILTINS)
    bundles = local_bundles(settings, plugins, tmp_path, ())
    with ExitStack() as files:
        programs = describe_programs(settings, plugins, tmp_path, 1, files, bundles=bundles, config_port=1)
    found = {}
    for each in programs.all:
        if not each.name.startswith("broker"):
            with monkeypatch.context() as own:
                for name, value in each._variables.items():
                    own.setenv(name, value)
                found[each.name] = load_settings(ClusterSettings)
    told = {
        name: [(value and value.get_secret_value()) for value in (of.auth_token, of.admin_token, of.pool_token)]
        for name, of in found.items()
    }
    assert told == {
        "config": ["auth_token", "admin_token", None],
        "gateway": ["auth_token", None, "pool_token"],
        "worker-1": ["auth_token", None, None],
    }
    own = {name: of.file_of("auth_token") for name, of in found.items()}
    assert set(own.values()) == {tmp_path / "AUTH_TOKEN"}, "a token that changes is not read again"
    assert found["config"].file_of("admin_token") == tmp_path / "ADMIN_TOKEN"
    (tmp_path / "ADMIN_TOKEN").write_text("another")
    assert (tmp_path / "admin-token").read_text() == "another"
    with ExitStack() as files:
        describe_programs(ClusterSettings(), plugins, tmp_path, 1, files, bundles=bundles, config_port=1)
    assert (tmp_path / "ADMIN_TOKEN").read_text() == "another", "the file that was named before is left alone"
