"""Whole encoders, texts in and vectors out, against sentence-transformers on the same folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from sie_core.contracts import InvalidInput, ModelLoadError
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import ask, deviation, reference, save_encoder, serve
from tests.pytorch.models import ARCHITECTURES, DEVIATION, HIDDEN, randomise
from tests.pytorch.tokenizers import write_tokenizer

BOUND = 1e-5
TEXTS = ["", "a", *make_texts(14, 12, seed=11)]
PROMPTS = {"query": "query: ", "document": "text: ", "other": "represent this: "}

Checkpoint = Callable[[str], Path]


def dense(in_features: int, out_features: int, *, seed: int = 1, **fields: Any) -> st.Dense:
    module = st.Dense(in_features, out_features, **fields)
    randomise(module, seed)
    return module


def layer_norm(dims: int) -> st.LayerNorm:
    module = st.LayerNorm(dims)
    with torch.no_grad():
        module.norm.weight.copy_(1 + DEVIATION * torch.randn(dims, generator=torch.Generator().manual_seed(2)))
        module.norm.bias.copy_(DEVIATION * torch.randn(dims, generator=torch.Generator().manual_seed(3)))
    return module


def encode(model: SentenceTransformer, **arguments: Any) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = model.encode(TEXTS, **arguments)
    return vectors


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_gives_the_reference_s_vectors(name: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    mode = "lasttoken" if ARCHITECTURES[name].causal else "mean"
    model = save_encoder(checkpoint(name), tmp_path, st.Pooling(HIDDEN, mode), length=70, prompts=PROMPTS)
    encoder = serve(tmp_path)
    assert encoder.facts.notes["runner"] != "sentence-transformers (fallback)"
    size = 1 if name == "convbert" else 16  # the reference's convolutions look into the padding of a batch
    for input_type, call in ((None, model.encode), ("query", model.encode_query), ("document", model.encode_document)):
        assert deviation(ask(encoder, TEXTS, input_type=input_type).vectors, call(TEXTS, batch_size=size)) <= BOUND


def test_a_padding_row_of_the_class_s_own_counts_whatever_the_config_names(tmp_path: Path) -> None:
    config = ARCHITECTURES["mpnet"].config()
    config.pad_token_id = 0  # its class counts positions from 2 on, as if it were 1
    model = tf.MPNetModel(config)
    randomise(model, 0)
    model.save_pretrained(tmp_path / "base")
    write_tokenizer(ARCHITECTURES["mpnet"].tokenizer, tmp_path / "base")
    save_encoder(tmp_path / "base", tmp_path / "saved", st.Pooling(HIDDEN, "mean"))
    encoder, library = serve(tmp_path / "saved"), reference(tmp_path / "saved")
    most = config.max_position_embeddings - 2
    assert encoder.facts.max_sequence_length == most
    library.max_seq_length = most
    texts = ["fox", "a <pad> in a text", "the lazy dog jumps " * 40]
    answer = ask(encoder, texts)
    assert answer.units[2].tokens == most
    assert deviation(answer.vectors, np.concatenate([library.encode([text]) for text in texts])) <= BOUND


def test_token_types_reach_a_decoder_that_embeds_them(tmp_path: Path) -> None:
    """Chinese GPT-2 models have BERT's tokenizer, which gives types, and add to each token what its type embeds to."""
    config = tf.GPT2Config(vocab_size=400, n_embd=HIDDEN, n_layer=2, n_head=4, n_positions=96, bos_token_id=2)
    base = tf.GPT2Model(config)
    randomise(base, 0)
    base.save_pretrained(tmp_path / "base")
    write_tokenizer("bert", tmp_path / "base", model_max_length=96)
    model = save_encoder(tmp_path / "base", tmp_path / "saved", st.Pooling(HIDDEN, "mean"))
    encoder = serve(tmp_path / "saved")
    assert encoder.facts.notes["runner"] == "packed"
    assert deviation(ask(encoder, TEXTS).vectors, model.encode(TEXTS, batch_size=1)) <= BOUND


@pytest.mark.parametrize(
    "modes", [*((mode,) for mode in st.Pooling.POOLING_MODES), ("cls", "mean", "max"), st.Pooling.POOLING_MODES]
)
@pytest.mark.parametrize("include_prompt", [True, False])
def test_every_pooling_gives_the_reference_s_vectors(
    modes: tuple[str, ...], include_prompt: bool, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    pooling = st.Pooling(HIDDEN, modes, include_prompt=include_prompt)
    model = save_encoder(checkpoint("bert"), tmp_path, pooling, length=60, prompts=PROMPTS)
    encoder = serve(tmp_path)
    assert encoder.facts.dims == {"dense": len(modes) * HIDDEN}
    for input_type, call in (("query", model.encode_query), (None, model.encode)):
        assert deviation(ask(encoder, TEXTS, input_type=input_type).vectors, call(TEXTS)) <= BOUND


def test_leaving_out_the_prompt_changes_the_vectors(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folders = [tmp_path / "with", tmp_path / "without"]
    for folder, include_prompt in zip(folders, (True, False), strict=True):
        pooling = st.Pooling(HIDDEN, "mean", include_prompt=include_prompt)
        save_encoder(checkpoint("bert"), folder, pooling, prompts=PROMPTS)
    taken_in, left_out = (ask(serve(folder), TEXTS, input_type="query").vectors for folder in folders)
    assert deviation(taken_in, left_out) > 0.1


def test_the_flags_of_older_pooling_files_are_read(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, ("cls", "mean")))
    old = '{"word_embedding_dimension": 32, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}'
    (tmp_path / "1_Pooling/config.json").write_text(old)
    assert deviation(ask(serve(tmp_path), TEXTS).vectors, encode(model)) <= BOUND


HEADS: dict[str, Callable[[], list[Any]]] = {
    "normalize": lambda: [st.Normalize()],
    "dense with tanh": lambda: [dense(HIDDEN, 24)],
    "dense without bias, then normalize": lambda: [
        dense(HIDDEN, 48, bias=False, activation_function=torch.nn.Identity()),
        st.Normalize(),
    ],
    "two dense": lambda: [
        dense(HIDDEN, 40, activation_function=torch.nn.GELU()),
        dense(40, 16, activation_function=torch.nn.ReLU(), seed=2),
        st.Normalize(),
    ],
    "dense with residual": lambda: [dense(HIDDEN, HIDDEN, use_residual=True)],
    "dense with projected residual": lambda: [dense(HIDDEN, 20, use_residual=True)],
    "layer norm": lambda: [layer_norm(HIDDEN), st.Normalize()],
    "dropout": lambda: [st.Dropout(0.5), dense(HIDDEN, 24)],
    "normalize in the middle": lambda: [st.Normalize(), dense(HIDDEN, 24)],
}


@pytest.mark.parametrize("head", HEADS)
def test_every_head_gives_the_reference_s_vectors(head: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), *HEADS[head]())
    encoder = serve(tmp_path)
    answer = ask(encoder, TEXTS)
    assert deviation(answer.vectors, encode(model)) <= BOUND
    assert encoder.facts.dims == {"dense": answer.vectors.shape[1]}
    unit_length = bool(np.allclose(np.linalg.norm(answer.vectors, axis=1), 1, atol=1e-5))
    assert all(output.normalized == unit_length for output in answer.outputs)


def test_pooling_and_normalisation_can_be_chosen_by_request(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), st.Normalize())
    encoder = serve(tmp_path)
    plain = ask(encoder, TEXTS, options={"normalize": False})
    model[1].pooling_mode = "cls"
    assert deviation(ask(encoder, TEXTS, options={"pooling": "cls"}).vectors, encode(model)) <= BOUND
    del model[2]
    model[1].pooling_mode = "mean"
    assert deviation(plain.vectors, encode(model)) <= BOUND
    assert not plain.outputs[0].normalized


def test_requests_for_another_pooling_share_no_batch_and_other_prompts_do(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), prompts=PROMPTS)
    encoder = serve(tmp_path)
    plain, query, other = (
        ask(encoder, ["a"], **fields).units[0].key
        for fields in ({}, {"input_type": "query", "instruction": "find"}, {"options": {"pooling": "max"}})
    )
    assert plain == query
    assert plain != other


def test_a_pooling_that_the_next_module_cannot_take_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, ("cls", "mean")), dense(2 * HIDDEN, 8))
    with pytest.raises(InvalidInput, match="pooling") as refused:
        ask(serve(tmp_path), TEXTS, options={"pooling": "max"})
    assert refused.value.param == "options.pooling"
    with pytest.raises(ModelLoadError, match=r"'default': runtime\.pooling is 'max'"):
        serve(tmp_path, runtime={"pooling": "max"})


def test_a_profile_s_pooling_decides_the_size(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, ("cls", "mean")))
    assert serve(tmp_path).facts.dims == {"dense": 2 * HIDDEN}
    assert serve(tmp_path, runtime={"pooling": "mean"}).facts.dims == {"dense": HIDDEN}


def test_the_files_own_size_cuts_every_vector_as_the_reference_does(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), st.Normalize(), truncate_dim=20)
    encoder = serve(tmp_path)
    answer = ask(encoder, TEXTS)
    assert encoder.facts.dims == {"dense": 20}
    assert deviation(answer.vectors, encode(model)) <= BOUND
    assert not answer.outputs[0].normalized
    again = ask(encoder, TEXTS, options={"normalize": True})
    assert deviation(again.vectors, encode(model, normalize_embeddings=True)) <= BOUND


def test_a_plain_checkpoint_is_pooled_by_its_mean(checkpoint: Checkpoint) -> None:
    model = reference(checkpoint("bert"))
    assert deviation(ask(serve(checkpoint("bert")), TEXTS).vectors, encode(model)) <= BOUND


def test_rows_of_a_result_outlive_it_and_each_other(checkpoint: Checkpoint) -> None:
    encoder = serve(checkpoint("bert"))
    first = ask(encoder, TEXTS)
    kept = first.vectors
    for _ in range(3):
        ask(encoder, [text + " more" for text in TEXTS])
    assert np.array_equal(first.vectors, kept)


def test_matryoshka_sizes_come_from_the_weights_or_the_config(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), st.Normalize())
    assert serve(tmp_path).facts.matryoshka_dims == ()
    tasks = {"encode": {"dense": {"matryoshka_dims": [8, 16]}}}
    assert serve(tmp_path, tasks=tasks).facts.matryoshka_dims == (8, 16, HIDDEN)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace("{", '{"matryoshka_dimensions": [32, 4, 1024],', 1))
    assert serve(tmp_path).facts.matryoshka_dims == (4, HIDDEN)
    with pytest.raises(ModelLoadError, match="64"):
        serve(tmp_path, tasks={"encode": {"dense": {"matryoshka_dims": [64]}}})
