"""MPNet and T5 without PyTorch: the states of transformers beyond every bucket, and wrong biases are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as tf
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sie_cpu.checkpoint.model import Described
from sie_cpu.families.claims import FEATURES
from sie_cpu.forward.batch import Floats
from sie_cpu.forward.proof import ProofFailed
from sie_cpu.forward.running import CpuRunner
from sie_cpu.kernels import kernels_for
from sie_cpu.packing import Packer
from sie_cpu.structures import DistanceBiases
from sie_text.architectures import Architecture
from sie_text.recipe import NotUnderstoodError
from sie_text.sequences import PackedBatch, TokenSequence

from sie_core.catalog import read_card
from sie_core.contracts import ModelCard
from tests.pytorch.forward.loop.test_bias import FAR, MODELS, T5, saved
from tests.pytorch.forward.support import TOLERANCE, packed_batch, padded_states
from tests.pytorch.models import randomise

__all__ = ["saved"]


def runner_of(card: ModelCard) -> CpuRunner:
    return CpuRunner(Described.read(card, FEATURES), kernels_for("float32"), 2)


def states_of(folder: Path) -> NDArray[np.float32]:
    ids, bounds = packed_batch(FAR).ids.numpy(), np.cumsum(FAR)[:-1]
    sequences = [TokenSequence(part, np.zeros_like(part)) for part in np.split(ids, bounds)]
    return runner_of(read_card(folder)).states(PackedBatch(sequences))


@pytest.mark.parametrize("name", MODELS)
def test_states_beyond_every_bucket_are_those_of_transformers(name: str, saved: Callable) -> None:
    folder, model = saved(name)
    expected = padded_states(model, packed_batch(FAR)).numpy()
    assert np.abs(states_of(folder) - expected).max() <= TOLERANCE * expected.std()


def test_mpnet_s_positions_begin_at_two_whatever_token_its_config_calls_padding(
    saved: Callable, tmp_path: Path
) -> None:
    folder = shutil.copytree(saved("mpnet")[0], tmp_path / "mpnet")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": 0}))
    expected = padded_states(tf.MPNetModel.from_pretrained(folder), packed_batch(FAR)).numpy()
    assert np.abs(states_of(folder) - expected).max() <= TOLERANCE * expected.std()


FAULTS: dict[str, Callable[[Floats], Floats]] = {
    "no biases": np.zeros_like,
    "a distance off by one": lambda biases: np.roll(biases, 1, axis=1),
    "keys after a query taken for those before it": lambda biases: biases[:, ::-1],
    "the heads in another order": lambda biases: np.roll(biases, 1, axis=0),
}


@pytest.mark.parametrize("name", ["mpnet", "t5"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found_at_load(
    name: str, fault: str, saved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = Packer.biases

    def wrong(self: Packer, by_distance: Floats, scale: float) -> DistanceBiases:
        return pack(self, FAULTS[fault](by_distance), scale)

    monkeypatch.setattr(Packer, "biases", wrong)
    with pytest.raises(ProofFailed, match="its states differ"):
        runner_of(read_card(saved(name)[0])).prove(expands_queries=False, judge=None)


def test_biases_of_each_layer_are_not_taken_for_shared_ones(tmp_path: Path) -> None:
    model: Any = tf.UMT5EncoderModel(tf.UMT5Config(**T5, d_kv=8))
    randomise(model, 0)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    card = ModelCard(tmp_path, config, records={"umt5": Architecture("umt5", like="t5")})
    with pytest.raises(
        NotUnderstoodError, match=r"encoder\.block\.1\.layer\.0\.SelfAttention\.relative_attention_bias"
    ):
        runner_of(card)


def test_a_tied_copy_of_the_words_is_passed_over(saved: Callable, tmp_path: Path) -> None:
    folder, _ = saved("t5")
    weights = load_file(folder / "model.safetensors")
    words = weights.pop("shared.weight")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    expected = states_of(folder)
    for tables in (
        {"encoder.embed_tokens.weight": words},
        {"encoder.embed_tokens.weight": 0 * words, "shared.weight": words},
    ):
        save_file({**weights, **tables}, tmp_path / "model.safetensors", metadata={"format": "pt"})
        assert np.array_equal(states_of(tmp_path), expected)
