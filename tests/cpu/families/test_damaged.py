"""Damaged and hostile files end in an error that names the tensor and its file; the process lives on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.sentence_transformer import modules as st
from sie_cpu.checkpoint.mapped import read_file
from sie_cpu.families.encoders import load

from sie_core.contracts import FamilyUnfitError, ModelLoadError
from tests.pytorch import encoders
from tests.pytorch.conftest import checkpoint
from tests.pytorch.models import HIDDEN

__all__ = ["checkpoint"]

QUERY = "encoder.layer.0.attention.self.query.weight"
NORM = "encoder.layer.1.output.LayerNorm.weight"
BIG = 1 << 62


@pytest.fixture(scope="module")
def model(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert") / "model"
    encoders.write_encoder(checkpoint("bert"), folder, st.Pooling(HIDDEN, "mean"))
    return folder


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copy"))


def parts(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Read header and data of a checkpoint."""
    whole = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    return json.loads(whole[8 : 8 + length]), whole[8 + length :]


def write(folder: Path, header: Any, data: bytes) -> None:
    told = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(told).to_bytes(8, "little") + told + data)


def refused(folder: Path, *told: str, kind: str = "CORRUPT") -> None:
    with pytest.raises(ModelLoadError) as error:
        load(encoders.context(folder))
    assert error.value.failure == kind
    for each in told:
        assert each in str(error.value)


HEADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "beyond the file": lambda header: header[QUERY].update(data_offsets=[0, BIG]),
    "before the file": lambda header: header[QUERY].update(data_offsets=[-8, 4088]),
    "backwards": lambda header: header[QUERY].update(data_offsets=[4096, 0]),
    "a shape of other size": lambda header: header[QUERY].update(shape=[HIDDEN, HIDDEN + 1]),
    "a huge shape": lambda header: header[QUERY].update(shape=[BIG, BIG]),
    "a huge shape without elements": lambda header: header[QUERY].update(shape=[BIG, BIG, 0], data_offsets=[0, 0]),
    "a shape of many dimensions": lambda header: header[QUERY].update(shape=[HIDDEN, HIDDEN, *[1] * 100]),
    "a negative shape": lambda header: header[QUERY].update(shape=[-HIDDEN, -HIDDEN]),
    "true for a size": lambda header: header[QUERY].update(shape=[True, HIDDEN * HIDDEN]),
    "a text for a shape": lambda header: header[QUERY].update(shape="32"),
    "no dtype": lambda header: header[QUERY].pop("dtype"),
    "integers": lambda header: header[QUERY].update(dtype="I32"),
    "eight bits": lambda header: header[QUERY].update(dtype="F8_E4M3"),
    "a list for an entry": lambda header: header.update({QUERY: [1, 2]}),
    "another shape": lambda header: header[QUERY].update(shape=[HIDDEN // 2, HIDDEN * 2]),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_entry_is_refused_by_name(name: str, folder: Path) -> None:
    header, data = parts(folder)
    HEADERS[name](header)
    write(folder, header, data)
    refused(folder, QUERY, "model.safetensors")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08",
        b"\xff" * 8,
        (50).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"{nope",
        (200_000).to_bytes(8, "little") + b'{"a":' * 40_000,
        (9).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7",
    ],
)
def test_a_hostile_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (file := tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors") as error:
        read_file(file)
    assert error.value.failure == "CORRUPT"


@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_file_that_is_cut_off_is_refused(share: float, folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    refused(folder, "model.safetensors", "cut off")


@pytest.mark.parametrize("name", [QUERY, NORM])
def test_a_weight_that_is_no_number_is_refused_by_name(name: str, folder: Path) -> None:
    header, data = parts(folder)
    start, stop = header[name]["data_offsets"]
    numbers = np.frombuffer(data[start:stop], dtype=np.float32).copy()
    numbers[-1] = np.nan
    write(folder, header, data[:start] + numbers.tobytes() + data[stop:])
    refused(folder, name, "model.safetensors", "NaN")


def test_what_the_kernels_do_not_compute_is_left_to_others(folder: Path) -> None:
    for fields, told in (
        ({"hidden_act": "gelu_magic"}, "gelu_magic"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"num_attention_heads": 5}, QUERY.rpartition(".")[0]),
        ({"hidden_size": "many"}, "config.json"),
    ):
        file = folder / "config.json"
        before = file.read_text()
        file.write_text(json.dumps({**json.loads(before), **fields}))
        with pytest.raises(ModelLoadError, match=told) as error:
            load(encoders.context(folder))
        assert isinstance(error.value, FamilyUnfitError) or error.value.failure == "CORRUPT"
        file.write_text(before)
    header, data = parts(folder)
    write(folder, {name: entry for name, entry in header.items() if name != QUERY}, data)
    with pytest.raises(FamilyUnfitError, match=QUERY):
        load(encoders.context(folder))
    write(folder, {**header, QUERY.replace("query", "magic"): header[QUERY]}, data)
    with pytest.raises(FamilyUnfitError, match="magic"):
        load(encoders.context(folder))
