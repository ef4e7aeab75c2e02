"""A pinned config is the config it was made from, with its revision, and nobody else's file is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sie_core.catalog import Catalog, ConfigError, read_config
from sie_core.catalog.configs.pinning import write_pinned
from sie_core.contracts import ModelConfig, PinnedFile
from sie_core.plugins import PluginSet

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHIPPED = """# Comments stay.
sie_id: acme/tiny
hf_id: acme/tiny   # as on the Hub
hf_revision: main
tasks:
  encode: { dense: {} }
profiles:
  default:
    adapter_options:
      runtime: { query_template: "hf_id: {text}" }
"""


def pinned(file: Path, folder: Path) -> tuple[Path, ModelConfig]:
    written = write_pinned(read_config(file), COMMIT, folder)
    return written, read_config(written)


def test_a_copy_differs_from_its_origin_in_the_revision_alone(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    origin = write_config("tiny", SHIPPED, folder="shipped")
    file, config = pinned(origin, tmp_path / "new/models")
    assert file == tmp_path / "new/models/acme--tiny.yaml"
    assert config == replace(read_config(origin), hf_revision=COMMIT, source=str(file))
    assert file.read_text() == SHIPPED.replace("hf_revision: main", f"hf_revision: {COMMIT}")
    assert origin.read_text() == SHIPPED
    assert list(file.parent.iterdir()) == [file]


def test_a_config_of_the_folder_itself_is_changed_where_it_is_and_can_be_pinned_anew(
    write_config: Callable[..., Path],
) -> None:
    file = write_config("mine", SHIPPED)
    assert pinned(file, file.parent) == pinned(file, file.parent)
    assert file.read_text().count("hf_revision") == 1


def test_a_config_in_one_line_is_pinned_too(write_config: Callable[..., Path], tmp_path: Path) -> None:
    origin = write_config("flow", "{sie_id: acme/tiny, hf_id: acme/tiny, license: mit}", folder="shipped")
    _, config = pinned(origin, tmp_path / "models")
    assert (config.hf_revision, config.license) == (COMMIT, "mit")


def test_a_model_that_no_file_configures_gets_a_config(tmp_path: Path) -> None:
    config = ModelConfig("acme/tiny", hf_id="acme/tiny", source="weights")
    written = read_config(write_pinned(config, COMMIT, tmp_path))
    assert (written.id, written.hf_id, written.hf_revision) == ("acme/tiny", "acme/tiny", COMMIT)


def test_a_file_that_is_in_the_way_stays(write_config: Callable[..., Path], tmp_path: Path) -> None:
    origin = write_config("tiny", SHIPPED, folder="shipped")
    other = write_config("acme--tiny", "{sie_id: other, hf_id: other}")
    with pytest.raises(ConfigError, match=r"acme--tiny\.yaml exists and is not the config of acme/tiny"):
        write_pinned(read_config(origin), COMMIT, tmp_path / "models")
    assert other.read_text() == "{sie_id: other, hf_id: other}"


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(write_config: Callable[..., Path]) -> None:
    file = write_config("tiny", SHIPPED)
    config = read_config(file)
    file.write_text(SHIPPED + "max_sequence_length: 5\n")
    with pytest.raises(ConfigError, match="is not what was read"):
        write_pinned(config, COMMIT, file.parent)
    assert COMMIT not in file.read_text()


def test_the_copy_in_the_models_folder_is_served_in_place_of_the_shipped_one(
    write_config: Callable[..., Path], build: Callable[..., Catalog], tmp_path: Path
) -> None:
    origin = write_config("tiny", SHIPPED, folder="shipped")
    file, _ = pinned(origin, tmp_path / "models")
    served = build(PluginSet(model_folders=(origin.parent,))).resolve("acme/tiny").config
    assert (Path(served.source).name, served.hf_revision) == (file.name, COMMIT)


def test_pickles_are_pinned_beside_those_that_are(write_config: Callable[..., Path], tmp_path: Path) -> None:
    text = SHIPPED + "pickles:\n  # a layer\n  head.pt: { size: 9, sha256: '" + "a" * 64 + "' }\n\n  b.pt: {sha256: '"
    text += "b" * 64 + "'}\nlicense: mit\n"
    for origin in (
        write_config("tiny", SHIPPED, folder="shipped"),
        write_config("tiny", text, folder="pinned"),
        write_config("tiny", "{sie_id: acme/tiny, hf_id: acme/tiny}", folder="flow"),
    ):
        config = read_config(origin)
        pins = {"pytorch_model.bin": PinnedFile(7, "c" * 64)}
        written = write_pinned(config, COMMIT, tmp_path / f"{origin.parent.name}-copy", pins)
        wanted = replace(config, hf_revision=COMMIT, pickles={**config.pickles, **pins}, source=str(written))
        assert read_config(written) == wanted
        assert written.read_text().count("pickles:") == 1
    assert "# Comments stay." in (tmp_path / "pinned-copy/acme--tiny.yaml").read_text()
