"""What the fallback proves at load: that all weights are the files', that texts do not touch, how long they may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as tf
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from sie_core.contracts import Adapter, InvalidInput, ModelLoadError
from tests.pytorch.encoders import ask, deviation, reference, save_encoder, serve, write_encoder
from tests.pytorch.models import HIDDEN, randomise
from tests.pytorch.tokenizers import write_tokenizer

BOUND = 1e-5
TEXTS = ["fox", "the lazy dog", "a query is short and a document is long " * 4, "dog", "index " * 30]
FAMILY = "sentence-transformers"

Checkpoint = Callable[[str], Path]


def chained(base: Path, folder: Path, *modules: Any) -> Path:
    for number, module in enumerate(modules):
        if hasattr(module, "parameters"):
            randomise(module, number)
    write_encoder(base, folder, *modules)
    return folder


def cnn(base: Path, folder: Path) -> Path:
    return chained(base, folder, st.CNN(HIDDEN, 8, [1, 3]), st.Pooling(16, "mean"))


def agrees(adapter: Adapter, model: SentenceTransformer, texts: list[str]) -> None:
    """Whatever it shares a batch with, a text has the vector it has alone."""
    expected = np.concatenate([model.encode([text]) for text in texts])
    for share in (texts, texts[::-1], texts[:2]):
        order = [texts.index(text) for text in share]
        assert deviation(ask(adapter, share).vectors, expected[order]) <= BOUND


@pytest.mark.parametrize("family", ["pytorch", FAMILY])
def test_a_checkpoint_that_lacks_a_tensor_is_refused_and_not_started_at_random(
    family: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = cnn(checkpoint("bert"), tmp_path)
    serve(folder, family)
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"lacks or misshapes encoder\.layer\.1\.output\.dense\.weight") as caught:
        serve(folder, family)
    assert caught.value.failure == "CORRUPT"


@pytest.mark.parametrize("name", ["M2M100", "Marian", "Pegasus"])
def test_a_whole_model_of_which_the_library_reads_the_encoder_alone_is_refused(name: str, tmp_path: Path) -> None:
    config = getattr(tf, f"{name}Config")(
        vocab_size=400, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48, decoder_ffn_dim=48,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=96, pad_token_id=1,
    )  # fmt: skip
    model = tf.AutoModel.from_config(config)
    randomise(model, 0)
    model.save_pretrained(tmp_path / "base")
    write_tokenizer("roberta", tmp_path / "base")
    for kind, part in (("whole", model), ("encoder", model.get_encoder())):
        folder = tmp_path / kind
        save_encoder(tmp_path / "base", folder, st.Pooling(32, "mean"))
        (folder / "model.safetensors").unlink()
        part.save_pretrained(folder)
    for family in ("pytorch", FAMILY):
        with pytest.raises(ModelLoadError, match="lacks or misshapes"):
            serve(tmp_path / "whole", family)
        agrees(serve(tmp_path / "encoder", family), reference(tmp_path / "encoder"), TEXTS)


def test_modules_that_padding_reaches_are_run_text_by_text(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = cnn(checkpoint("bert"), tmp_path)
    adapter = serve(folder)
    assert "one text a call, as a text's vector changes by" in adapter.facts.notes["runner_reason"]
    agrees(adapter, reference(folder), TEXTS)


def test_texts_share_batches_where_padding_is_harmless(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = chained(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"))
    adapter = serve(folder, FAMILY)
    assert "padded batches" in adapter.facts.notes["runner_reason"]
    agrees(adapter, reference(folder), TEXTS)


def test_canine_is_run_text_by_text_and_refuses_a_text_that_is_too_short_for_it(tmp_path: Path) -> None:
    config = tf.CanineConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, num_hash_buckets=64,
        max_position_embeddings=64, local_transformer_stride=32,
    )  # fmt: skip
    model = tf.CanineModel(config)
    randomise(model, 0)
    model.save_pretrained(tmp_path / "base")
    tf.CanineTokenizer(model_max_length=64).save_pretrained(tmp_path / "base")
    folder = chained(tmp_path / "base", tmp_path / "saved", st.Pooling(32, "mean"))
    adapter, theirs = serve(folder, FAMILY), reference(folder)
    agrees(adapter, theirs, [*TEXTS, "ab"])
    assert "CanineTokenizer" in serve(folder).facts.notes["runner_reason"]
    for short in ("", "a"):
        with pytest.raises(RuntimeError):
            theirs.encode([short])
        with pytest.raises(InvalidInput, match="needs 4 at least") as refused:
            ask(adapter, ["fox", short])
        assert refused.value.param == "items[1].text"


def test_a_class_that_wants_several_tokens_of_words_gets_them_at_load(tmp_path: Path) -> None:
    config = tf.CanineConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, num_hash_buckets=256,
        local_transformer_stride=32,
    )  # fmt: skip
    model = tf.CanineModel(config)
    randomise(model, 0)
    model.save_pretrained(tmp_path / "base")
    write_tokenizer("bert", tmp_path / "base", model_max_length=256)  # any word may be one token
    folder = chained(tmp_path / "base", tmp_path / "saved", st.Pooling(32, "mean"))
    adapter = serve(folder, FAMILY)
    agrees(adapter, reference(folder), ["the lazy dog", "a query is short and a document is long " * 4])
    with pytest.raises(InvalidInput, match="needs 4 at least"):
        ask(adapter, [""])


def grouped(folder: Path, value_size: int) -> Path:
    """Write a model with latent attention and fewer key heads than heads, on which its class fails in batches."""
    config = tf.MiniCPM3Config(
        vocab_size=400, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=128, pad_token_id=0, kv_lora_rank=8, q_lora_rank=8,
        qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=value_size,
    )  # fmt: skip
    model = tf.MiniCPM3Model(config)
    randomise(model, 0)
    model.save_pretrained(folder / "base")
    write_tokenizer("bert", folder / "base", model_max_length=128)
    return chained(folder / "base", folder / "saved", st.Pooling(32, "mean"))


def test_a_class_that_fails_on_padded_batches_is_run_text_by_text(tmp_path: Path) -> None:
    folder = grouped(tmp_path, value_size=12)
    with pytest.raises(RuntimeError):
        reference(folder).encode(TEXTS)
    adapter = serve(folder)
    assert "one text a call, as its class fails on a padded batch" in adapter.facts.notes["runner_reason"]
    agrees(adapter, reference(folder), TEXTS)


def test_a_class_that_fails_on_every_text_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"fails on every text, alone too \(RuntimeError\)") as caught:
        serve(grouped(tmp_path, value_size=8))
    assert caught.value.failure == "CONFIG"


def test_reformer_is_run_text_by_text(tmp_path: Path) -> None:
    config = tf.ReformerConfig(
        vocab_size=400, hidden_size=32, attention_head_size=8, num_attention_heads=4, feed_forward_size=48,
        attn_layers=["local", "local"], local_attn_chunk_length=16, axial_pos_embds=False,
        max_position_embeddings=128, is_decoder=False, pad_token_id=0,
    )  # fmt: skip
    model = tf.ReformerModel(config)
    randomise(model, 0)
    model.save_pretrained(tmp_path / "base")
    write_tokenizer("bert", tmp_path / "base", model_max_length=128)
    folder = chained(tmp_path / "base", tmp_path / "saved", st.Pooling(64, "mean"))
    agrees(serve(folder, FAMILY), reference(folder), TEXTS)


class _Random(st.Normalize):
    """Stands for a module that draws at random, such as hashing by random rotations."""

    def forward(self, features: Any) -> Any:
        vectors = features["sentence_embedding"]
        features["sentence_embedding"] = vectors + 0.1 * vectors.new_empty(vectors.shape).normal_()
        return features


def test_a_model_that_draws_at_random_is_refused(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = chained(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), st.Normalize())
    monkeypatch.setattr(st.Normalize, "forward", _Random.forward)
    with pytest.raises(ModelLoadError, match="another vector each time") as caught:
        serve(folder, FAMILY)
    assert caught.value.failure == "CONFIG"


def test_positions_with_an_offset_limit_the_length(checkpoint: Checkpoint, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for file in checkpoint("roberta").iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    write_tokenizer("roberta", base, model_max_length=10**30)
    transformer = st.Transformer(str(base))
    folder = tmp_path / "saved"
    SentenceTransformer(modules=[transformer, st.Pooling(HIDDEN, "mean")], device="cpu").save_pretrained(
        str(folder), create_model_card=False
    )
    adapter = serve(folder, FAMILY)
    assert adapter.facts.max_sequence_length == 96
    answer = ask(adapter, ["the lazy dog jumps " * 60])
    assert answer.units[0].tokens == 96
    assert np.isfinite(answer.vectors).all()


def test_positions_that_no_class_has_are_refused_by_both_families(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = cnn(checkpoint("bert"), tmp_path)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("{", '{"position_embedding_type": "relative_key",', 1))
    for family in ("pytorch", FAMILY):
        with pytest.raises(ModelLoadError, match="position_embedding_type='relative_key'"):
            serve(folder, family)
