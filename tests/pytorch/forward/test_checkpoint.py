"""Loading: safetensors alone, every weight accounted for, published dialects understood."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
import transformers.core_model_loading as reading
from safetensors.torch import load_file, save_file
from sie_pytorch.forward.choice import proof

from sie_core.contracts import DeviceLost, ModelLoadError, OutOfDeviceMemory
from tests.pytorch.forward.support import TOLERANCE, batch_for, build, deviation, forward, packed_batch
from tests.pytorch.models import ARCHITECTURES, randomise

Change = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


@pytest.fixture
def copy_of(checkpoint: Callable, tmp_path: Path) -> Callable[[str], Path]:
    """Copy a checkpoint to a folder that the test may write to."""
    return lambda name: Path(shutil.copytree(checkpoint(name), tmp_path / name))


def change_weights(folder: Path, change: Change) -> None:
    file = folder / "model.safetensors"
    weights = {name: weight.clone() for name, weight in load_file(file).items()}
    save_file(change(weights), file, metadata={"format": "pt"})


def change_config(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_missing_weight_is_refused_by_name(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("bert")
    missing = "encoder.layer.1.output.dense.weight"
    change_weights(folder, lambda weights: {name: weight for name, weight in weights.items() if name != missing})
    with pytest.raises(ModelLoadError, match=r"lacks or misshapes encoder\.layer\.1\.output\.dense\.weight") as caught:
        build(folder)
    assert caught.value.failure == "CORRUPT"


def test_a_bias_the_class_would_drop_is_refused(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("llama")
    change_weights(folder, lambda weights: {**weights, "layers.0.self_attn.q_proj.bias": torch.ones(32)})
    with pytest.raises(ModelLoadError, match=r"does not use: layers\.0\.self_attn\.q_proj\.bias"):
        build(folder)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("bert", "bert.encoder.layer.0.attention.self.distance_embedding.weight"),
        ("bert", "encoder.layer.2.attention.self.query.lora_A.weight"),
        ("llama", "model.layers.1.self_attn.q_norm.weight"),
    ],
)
def test_a_weight_of_a_part_that_a_layer_of_the_class_has_not_is_refused(
    name: str, key: str, copy_of: Callable[[str], Path]
) -> None:
    folder = copy_of(name)
    change_weights(folder, lambda weights: {**weights, key: torch.ones(32)})
    with pytest.raises(ModelLoadError, match=rf"does not use: {re.escape(key)}") as caught:
        build(folder)
    assert caught.value.failure == "CORRUPT"


def test_heads_and_buffers_beside_the_layers_are_passed_over(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("bert")
    others = ("cls.predictions.bias", "pooler.dense.weight", "decoder.block.0.layer.0.k.weight", "lm_head.dense.bias")
    buffers = ("embeddings.position_ids", "encoder.layer.0.attention.self.rotary.inv_freq")
    change_weights(folder, lambda weights: {**weights, **{key: torch.ones(2) for key in (*others, *buffers)}})
    assert build(folder).info.model_type == "bert"


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
@pytest.mark.parametrize("positions", ["relative_key", "relative_key_query", "alibi", "rotary"])
def test_positions_that_the_class_does_not_have_are_refused(
    name: str, positions: str, copy_of: Callable[[str], Path]
) -> None:
    folder = copy_of(name)
    change_config(folder, position_embedding_type=positions)
    with pytest.raises(ModelLoadError, match=f"position_embedding_type='{positions}'") as caught:
        build(folder)
    assert caught.value.failure == "CONFIG"
    change_config(folder, position_embedding_type="absolute")
    build(folder)


def test_a_rotary_class_may_say_so(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("jina-v3")
    change_config(folder, position_embedding_type="rotary")
    build(folder)


@pytest.mark.parametrize("name", ["M2M100", "Marian", "Pegasus", "PegasusX", "Blenderbot", "BlenderbotSmall"])
def test_an_encoder_saved_without_its_decoder_is_served_and_a_whole_model_refused(name: str, tmp_path: Path) -> None:
    config = getattr(tf, f"{name}Config")(
        vocab_size=400, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48, decoder_ffn_dim=48,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=96, pad_token_id=1,
    )  # fmt: skip
    whole = tf.AutoModel.from_config(config).eval()
    randomise(whole, seed=3)
    whole.save_pretrained(tmp_path / "whole")
    with pytest.raises(ModelLoadError, match="lacks or misshapes"):
        build(tmp_path / "whole")
    encoder = whole.get_encoder()
    encoder.save_pretrained(tmp_path / "encoder")
    batch = packed_batch((30, 7, 50, 1))
    rows = [batch.ids[place][None] for place in batch.places]
    with torch.inference_mode():
        alone = torch.cat([encoder(input_ids=ids).last_hidden_state[0] for ids in rows])
    assert deviation(forward(build(tmp_path / "encoder"), batch), alone) <= TOLERANCE


def test_a_weight_of_another_shape_is_refused(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("bert")
    change_config(folder, intermediate_size=64)
    with pytest.raises(ModelLoadError) as caught:
        build(folder)
    assert caught.value.failure == "CORRUPT"


def test_a_broken_file_is_refused(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("bert")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelLoadError) as caught:
        build(folder)
    assert caught.value.failure == "CORRUPT"
    assert str(folder) not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("could not create a primitive", OutOfDeviceMemory),
        ("unable to mmap 400 bytes from file <model.safetensors>: Cannot allocate memory (12)", OutOfDeviceMemory),
        ("CUDA error: an illegal memory access was encountered", DeviceLost),
    ],
)
@pytest.mark.parametrize(
    ("name", "where", "what"),
    [
        ("bert", reading, "_materialize_copy"),
        ("nomic", reading.Chunk, "convert"),
        ("bert", proof, "states_alone"),
        ("bert", proof, "prove"),
    ],
)
def test_a_device_that_fails_during_a_load_is_no_fault_of_the_checkpoint(
    name: str,
    where: Any,
    what: str,
    said: str,
    raised: type[Exception],
    checkpoint: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(where, what, fail)
    with pytest.raises(raised):
        build(checkpoint(name))


def test_pickled_weights_are_never_read(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("bert")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"no \*\.safetensors") as caught:
        build(folder)
    assert caught.value.failure == "CORRUPT"


@pytest.mark.parametrize("config", [{"model_type": "no-such-model"}, {"model_type": "bert", "vocab_size": "many"}])
def test_a_config_that_transformers_does_not_know_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError) as caught:
        build(tmp_path)
    assert caught.value.failure == "CONFIG"


def test_a_model_that_is_no_text_encoder_is_refused(tmp_path: Path) -> None:
    tf.CLIPConfig().save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="'clip' is not a text encoder alone") as caught:
        build(tmp_path)
    assert caught.value.failure == "CONFIG"


def test_a_model_that_wants_more_than_token_ids_is_refused(tmp_path: Path) -> None:
    config = tf.XmodConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    tf.AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="XmodModel does not run on token ids alone") as caught:
        build(tmp_path)
    assert caught.value.failure == "CONFIG"


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("bert", "BertForMaskedLM"),
        ("roberta", "RobertaForSequenceClassification"),
        ("qwen3", "Qwen3ForCausalLM"),
        ("t5", "T5ForConditionalGeneration"),
    ],
)
def test_the_encoder_of_a_checkpoint_with_a_head_is_found(name: str, head: str, tmp_path: Path) -> None:
    model = getattr(tf, head)(ARCHITECTURES[name].config()).eval()
    randomise(model, seed=2)
    model.save_pretrained(tmp_path)
    batch = batch_for(name)
    states = forward(build(tmp_path), batch)
    base = model.encoder if name == "t5" else model.base_model
    with torch.inference_mode():
        alone = torch.cat([base(input_ids=batch.ids[place][None]).last_hidden_state[0] for place in batch.places])
    batch = packed_batch([place.stop - place.start for place in batch.places])
    assert deviation(states if name == "t5" else forward(build(tmp_path), batch), alone) <= TOLERANCE


def test_half_precision_weights_are_computed_in_float32(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("bert")
    change_weights(folder, lambda weights: {name: weight.half() for name, weight in weights.items()})
    runner = build(folder)
    assert runner.info.precision == "float32"
    assert forward(runner, batch_for("bert")).dtype == torch.float32


def test_two_models_of_one_config_keep_their_own_attention(checkpoint: Callable) -> None:
    batch = batch_for("bert")
    packed, padded = build(checkpoint("bert")), build(checkpoint("bert"), runner_specs=())
    assert (packed.info.name, padded.info.name) == ("packed", "padded")
    assert deviation(forward(packed, batch), forward(padded, batch)) <= TOLERANCE


def test_the_first_nomic_checkpoints_are_read(copy_of: Callable[[str], Path], runner: Callable) -> None:
    folder = copy_of("nomic")
    config = json.loads((folder / "config.json").read_text())
    first = {
        "model_type": "nomic_bert", "activation_function": "swiglu", "n_embd": config["hidden_size"],
        "n_head": config["num_attention_heads"], "n_layer": config["num_hidden_layers"],
        "n_inner": config["intermediate_size"], "n_positions": 8192, "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
        "layer_norm_epsilon": config["layer_norm_eps"], "vocab_size": config["vocab_size"], "prenorm": False,
        "type_vocab_size": config["type_vocab_size"], "use_rms_norm": False, "parallel_block": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(first))
    batch = batch_for("nomic")
    assert deviation(forward(build(folder), batch), forward(runner("nomic"), batch)) <= TOLERANCE
    refused = {
        "rotary_emb_fraction": 0.5, "rotary_scaling_factor": 2, "causal": True, "scale_attn_weights": False,
        "scale_attn_by_inverse_layer_idx": True, "moe_every_n_layers": 2,
    }  # fmt: skip
    for field, value in refused.items():
        (folder / "config.json").write_text(json.dumps({**first, field: value}))
        with pytest.raises(ModelLoadError, match=re.escape(f"{field}={value}")):
            build(folder)


def test_the_first_layout_of_jina_v3_is_refused_with_the_remedy(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("xlm-roberta")
    change_config(folder, lora_adaptations=["retrieval.query"], position_embedding_type="rotary")
    with pytest.raises(ModelLoadError, match="jina-embeddings-v3-hf") as caught:
        build(folder)
    assert caught.value.failure == "CONFIG"


def test_an_attention_backend_that_is_not_there_is_refused_with_the_choices(checkpoint: Callable) -> None:
    with pytest.raises(ModelLoadError, match="auto, sdpa, eager") as caught:
        build(checkpoint("bert"), attention_backend="flash_attention_2")
    assert caught.value.failure == "DEPENDENCY"
