"""What a folder of weights will take, from the headers of its files."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from sie_core.memory import weight_bytes


@pytest.fixture
def folder(tmp_path):
    tensors = {"half": np.ones((10, 10), np.float16), "ids": np.arange(5, dtype=np.int64)}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "1_Dense").mkdir()
    save_file({"weight": np.ones((3, 4), np.float32)}, tmp_path / "1_Dense" / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text("{}" * 1000)
    return tmp_path


FILES = ("model.safetensors", "1_Dense/model.safetensors", "tokenizer.json")


@pytest.mark.parametrize(("precision", "width"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_floating_point_tensors_count_at_the_precision_and_others_as_they_are(folder, precision, width):
    assert weight_bytes(folder, FILES, precision) == width * 100 + 5 * 8 + width * 12


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x02" + b"\0" * 7 + b"[]" + b"x" * 30])
def test_a_file_that_cannot_be_read_counts_by_its_size(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    assert weight_bytes(tmp_path, ["model.safetensors", "gone.safetensors"], "float32") == len(content)
