"""What the probes of the proof hold: special tokens in every place, chunks, rare kinds of positions and attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from sie_pytorch.forward import Batch, BuiltRunner
from sie_pytorch.forward.checkpoint.reading import load_model
from sie_pytorch.forward.choice.probes import PROBE_WINDOW, make_probe, narrow_windows, special_tokens

from tests.pytorch.forward.support import TOLERANCE, PackedBatch, build, deviation, forward, packed_batch
from tests.pytorch.models import DECODER, ENCODER, HEADS, HIDDEN, ROBERTA, VOCABULARY, randomise

MASK = 4
BOTH = {
    "vocab_size": VOCABULARY, "d_model": HIDDEN, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS,
}  # fmt: skip
"""An encoder and a decoder."""


def write(folder: Path, config: str, **fields: Any) -> Any:
    """Write a checkpoint of transformers' base class, and return the model."""
    model = tf.AutoModel.from_config(getattr(tf, config)(**fields)).eval()
    randomise(model, 0)
    model.save_pretrained(folder)
    return model


@torch.inference_mode()
def alone(model: Any, batch: PackedBatch) -> torch.Tensor:
    """Run each sequence by itself, as sentence-transformers runs one text."""
    rows = [batch.ids[place][None] for place in batch.places]
    return torch.cat([model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0] for ids in rows])


def holds(runner: BuiltRunner, model: Any, batch: PackedBatch) -> bool:
    return deviation(forward(runner, batch), alone(model, batch)) <= TOLERANCE


def of(probe: Batch) -> list[list[int]]:
    return [probe.ids[place].tolist() for place in probe.spans()]


def test_special_tokens_stand_at_the_start_at_the_end_and_inside_of_probe_sequences() -> None:
    model = tf.EsmModel(tf.EsmConfig(**ENCODER, mask_token_id=MASK, eos_token_id=2))
    assert special_tokens(model.config)[0] == ENCODER["pad_token_id"]
    sequences = of(make_probe(model, None, torch.device("cpu")))
    for token in special_tokens(model.config):
        counts = [sequence.count(token) for sequence in sequences]
        assert sum(counts) >= 2
        assert min(counts) == 0
        assert any(token in sequence[1:-1] for sequence in sequences)
    assert {sequence[0] for sequence in sequences} & {0, 2, MASK}
    assert {sequence[-1] for sequence in sequences} & {0, 2, MASK}
    assert all(len(set(sequence)) > 1 or len(sequence) == 1 for sequence in sequences)


@pytest.mark.parametrize("positions", ["rotary", "absolute"])
def test_mask_tokens_of_a_neighbour_change_nothing_in_esm(positions: str, tmp_path: Path) -> None:
    fields = {**ENCODER, "pad_token_id": 1, "mask_token_id": MASK, "token_dropout": True}
    model = write(tmp_path, "EsmConfig", **fields, position_embedding_type=positions)
    runner = build(tmp_path)
    assert "not packed: its states differ" in runner.info.reason
    batch = packed_batch((30, 5, 9, 40))
    for place in (2, 7, 8, 21, 36):
        batch.ids[place] = MASK
    assert holds(runner, model, batch)


def test_the_chunks_of_llama_4_are_not_forgotten(tmp_path: Path) -> None:
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 48}
    model = write(tmp_path, "Llama4TextConfig", **DECODER, **experts, attention_chunk_size=64)
    loaded = load_model(tmp_path, torch.float32, torch.device("cpu"))
    with narrow_windows(loaded):
        assert loaded.config.attention_chunk_size == PROBE_WINDOW
    assert loaded.config.attention_chunk_size == 64
    assert holds(build(tmp_path), model, packed_batch((150, 7, 90, 64, 65)))


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ("BigBirdConfig", {**ENCODER, "max_position_embeddings": 256, "attention_type": "block_sparse"}),
        ("BigBirdPegasusConfig", {**BOTH, "max_position_embeddings": 256}),
    ],
)
def test_block_sparse_attention_is_full_whatever_came_before_and_said_to_be(
    config: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    model = write(tmp_path, config, **fields, block_size=4, num_random_blocks=1)
    runner = build(tmp_path)
    assert "full, in place of the block_sparse attention" in runner.info.notes["attention"]
    getattr(model, "encoder" if "Pegasus" in config else "base_model").set_attention_type("original_full")
    batch = packed_batch((200, 7, 90))
    assert holds(runner, model, batch)
    assert deviation(forward(runner, batch.one(batch.places[0])), forward(runner, batch)[:200]) <= TOLERANCE


def test_with_two_sets_of_frequencies_a_text_has_those_it_has_alone(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64, "factor": 8.0,
        "short_factor": [1.0] * 4, "long_factor": [3.0, 4.0, 6.0, 9.0],
    }  # fmt: skip
    model = write(
        tmp_path,
        "Phi3Config",
        **DECODER,
        rope_parameters=rope,
        original_max_position_embeddings=64,
        sliding_window=None,
    )
    for specs in (None, ()):
        runner = build(tmp_path) if specs is None else build(tmp_path, specs)
        assert runner.info.name == ("packed" if specs is None else "padded")
        assert runner.info.max_sequence_length == DECODER["max_position_embeddings"]
        for lengths in ((100, 7, 64, 65, 3), (7, 9), (90, 300)):
            assert holds(runner, model, packed_batch(lengths))


def test_frequencies_that_follow_the_longest_text_of_a_batch_limit_the_length(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "original_max_position_embeddings": 64, "factor": 2.0}
    write(tmp_path, "LlamaConfig", **DECODER, rope_parameters=rope)
    assert build(tmp_path).info.max_sequence_length == 64


@pytest.mark.parametrize(
    ("config", "fields", "limit"),
    [
        ("IBertConfig", {**ROBERTA, "quant_mode": False}, 96),
        ("YosoConfig", {**ENCODER, "use_expectation": True}, 96),
        ("MraConfig", {**ENCODER, "max_position_embeddings": 64}, 64),
        ("NystromformerConfig", {**ENCODER, "max_position_embeddings": 64}, 64),
        ("LongformerConfig", {**ROBERTA, "attention_window": [16] * 3}, 96),
        ("EsmConfig", {**ENCODER, "pad_token_id": 1}, 94),
        ("BartConfig", {**BOTH, "max_position_embeddings": 96, "pad_token_id": 1}, 96),
        (
            "LEDConfig",
            {
                **BOTH,
                "max_encoder_position_embeddings": 128,
                "max_decoder_position_embeddings": 100,
                "attention_window": [16, 16],
                "pad_token_id": 1,
            },
            100,
        ),
    ],
)
def test_positions_with_an_offset_are_counted_from_where_a_text_begins(
    config: str, fields: dict[str, Any], limit: int, tmp_path: Path
) -> None:
    model = write(tmp_path, config, **fields)
    runner = build(tmp_path)
    assert runner.info.max_sequence_length == limit
    assert forward(runner, packed_batch((limit, 3))).isfinite().all()
    with pytest.raises((IndexError, RuntimeError)):
        alone(model, packed_batch((limit + 1,)))


def test_deberta_without_absolute_positions_has_no_limit_of_positions(tmp_path: Path) -> None:
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 16}
    fields = {**ENCODER, **relative, "type_vocab_size": 0, "position_biased_input": False}
    model = write(tmp_path, "DebertaV2Config", **fields, position_buckets=8)
    runner = build(tmp_path)
    assert runner.info.max_sequence_length is None
    assert holds(runner, model, packed_batch((300, 7)))
