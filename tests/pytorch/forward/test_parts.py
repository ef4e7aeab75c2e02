"""An encoder that lies inside a larger model's checkpoint is served as one that lies alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sie_pytorch.forward import EncoderPart, build_runner
from sie_pytorch.forward.specs import RUNNERS

from sie_core.contracts import Device, ModelCard, ModelLoadError
from tests.pytorch.forward.support import batch_for, build, forward

PREFIX = "inner.encoder.model."


@pytest.fixture
def larger(checkpoint: Callable[[str], Path], tmp_path: Path) -> Callable[..., tuple[Path, EncoderPart]]:
    """Put an encoder's tensors behind a prefix, beside others; one as another's alias."""

    def write(name: str, *, without: str = "") -> tuple[Path, EncoderPart]:
        source = checkpoint(name)
        tensors = {f"{PREFIX}{key}": each for key, each in load_file(source / "model.safetensors").items()}
        tensors.pop(f"{PREFIX}{without}", None)
        others = {"inner.head.weight": torch.ones(3), "encoder.model.weight": torch.ones(2)}
        alias = next(key for key in tensors if "norm" in key.lower())
        tensors["kept"] = tensors.pop(alias)
        save_file(tensors | others, tmp_path / "model.safetensors", metadata={alias: "kept"})
        return tmp_path, EncoderPart(json.loads((source / "config.json").read_text()), PREFIX)

    return write


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "modernbert", "t5"])
def test_its_states_are_those_of_the_encoder_alone(
    name: str, larger: Callable[..., tuple[Path, EncoderPart]], checkpoint: Callable[[str], Path]
) -> None:
    folder, part = larger(name)
    card = ModelCard(folder, {})
    inner = build_runner(folder, card, Device("cpu"), "float32", runner_specs=RUNNERS, part=part)
    alone = build(checkpoint(name), RUNNERS)
    assert (inner.info.name, inner.info.model_type) == (alone.info.name, alone.info.model_type)
    assert inner.info.max_sequence_length == alone.info.max_sequence_length
    batch = batch_for(name)
    # Not bit for bit: a product with one row (T5's, padded, of one token) is summed in an order that depends, on some
    # processors, on where in the mapped file the weights lie.
    torch.testing.assert_close(forward(inner, batch), forward(alone, batch), rtol=0, atol=1e-5)


def test_a_tensor_that_it_lacks_is_named(larger: Callable[..., tuple[Path, EncoderPart]]) -> None:
    folder, part = larger("bert", without="embeddings.LayerNorm.weight")
    with pytest.raises(ModelLoadError, match=r"embeddings\.LayerNorm\.weight") as failed:
        build_runner(folder, ModelCard(folder, {}), Device("cpu"), "float32", part=part)
    assert failed.value.failure == "CORRUPT"


def test_a_config_that_transformers_does_not_know_is_refused(larger: Callable[..., tuple[Path, EncoderPart]]) -> None:
    folder, _ = larger("bert")
    part = EncoderPart({"model_type": "no-such-model"}, PREFIX)
    with pytest.raises(ModelLoadError, match="encoder's config") as failed:
        build_runner(folder, ModelCard(folder, {}), Device("cpu"), "float32", part=part)
    assert failed.value.failure == "CONFIG"
