"""Prompts, instructions and templates: which words go around a text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer import modules as st
from sie_text.prompts import LONGEST_PROMPT, MOST_ADDED, Prompts

from sie_core.contracts import InvalidInput, Item, ModelLoadError
from tests.pytorch.encoders import ask, deviation, save_encoder, serve, task
from tests.pytorch.models import HIDDEN

TEXTS = ["a query is short", "a document is long; the model reads both", ""]
CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "query and document": {"prompts": {"query": "query: ", "document": "text: "}},
    "default": {"prompts": {"query": "query: ", "other": "represent: "}, "default_prompt_name": "other"},
    "default is the query's": {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    "passage": {"prompts": {"query": "query: ", "passage": "passage: "}},
}

Checkpoint = Callable[[str], Path]


@pytest.mark.parametrize("case", CASES)
def test_prompts_are_chosen_as_the_reference_does(case: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), **CASES[case])
    encoder = serve(tmp_path)
    for input_type, call in ((None, model.encode), ("query", model.encode_query), ("document", model.encode_document)):
        assert deviation(ask(encoder, TEXTS, input_type=input_type).vectors, call(TEXTS)) <= 1e-5
    assert ("doc_template" in encoder.facts.notes.get("prompts", "")) == (case == "passage")


def test_an_instruction_stands_in_for_the_prompt(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean", include_prompt=False))
    encoder = serve(tmp_path)
    for input_type in (None, "query", "document"):
        answer = ask(encoder, TEXTS, input_type=input_type, instruction="find the answer:")
        assert deviation(answer.vectors, model.encode(TEXTS, prompt="find the answer: ")) <= 1e-5


def test_a_prompt_is_chosen_by_its_name(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), **CASES["default"])
    encoder = serve(tmp_path)
    for name in ("other", "query"):
        answer = ask(encoder, TEXTS, options={"prompt_name": name})
        assert deviation(answer.vectors, model.encode(TEXTS, prompt_name=name)) <= 1e-5
    assert deviation(model.encode(TEXTS, prompt_name="other"), model.encode(TEXTS, prompt_name="query")) > 1e-3


def test_a_profile_s_templates_shape_queries_and_all_other_texts(checkpoint: Checkpoint, tmp_path: Path) -> None:
    prompts = {"query": "unused: ", "document": "unused: "}
    model = save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"), prompts=prompts)
    options = {
        "query_template": "Instruct: {instruction}\nQuery: {text} ?",
        "doc_template": "passage: {text}",
        "default_instruction": "search",
    }
    encoder = serve(tmp_path, runtime=options)
    for fields, words in (
        ({"input_type": "query"}, "Instruct: search\nQuery: {} ?"),
        ({"input_type": "query", "instruction": "rank"}, "Instruct: rank\nQuery: {} ?"),
        ({"input_type": "document"}, "passage: {}"),
        ({}, "passage: {}"),
    ):
        answer = ask(encoder, TEXTS, options=options, **fields)
        expected = model.encode([words.format(text) for text in TEXTS], prompt="")
        assert deviation(answer.vectors, expected) <= 1e-5


@pytest.mark.parametrize(
    "template", ["no text", "{text} {text}", "{text} {other}", "{text:>9}", "{text!r}", "{text", "{}"]
)
def test_a_malformed_template_is_refused(template: str, checkpoint: Checkpoint) -> None:
    with pytest.raises(InvalidInput, match="once") as refused:
        Prompts({"query": ""}).choose(task(input_type="query", options={"query_template": template}))
    assert refused.value.param == "options.query_template"
    for family in ("pytorch", "sentence-transformers"):
        with pytest.raises(ModelLoadError, match=r"runtime\.doc_template") as failed:
            serve(checkpoint("bert"), family, runtime={"doc_template": template})
        assert failed.value.failure == "CONFIG"


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
def test_words_around_all_texts_of_a_request_are_bounded(family: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"))
    encoder = serve(tmp_path, family)
    instruction = "x" * LONGEST_PROMPT
    items = [Item(text="a")] * (MOST_ADDED // LONGEST_PROMPT + 1)
    with pytest.raises(InvalidInput, match="send fewer texts") as refused:
        list(encoder.prepare(items, task(instruction=instruction)))
    assert refused.value.param == "instruction"
    assert Prompts({}).choose(task(instruction=instruction), len(items) - 1).prefix == instruction + " "


LONG = "the search engine ranks every document by its embedding and the index keeps what it has read"


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("truncate", ["start", "end", "error"])
@pytest.mark.parametrize("room", [-1, 0, 1, 5, 99])
def test_the_vector_of_a_cut_query_is_the_mean_of_the_prompt_and_the_part_that_is_left(
    truncate: str, pooled: bool, room: int, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """`room`: the tokens of text that the limit leaves beside the prompt and the two special tokens."""
    prompt = "find the document:"
    pooling = st.Pooling(HIDDEN, "mean", include_prompt=pooled)
    model = save_encoder(checkpoint("bert"), tmp_path, pooling, prompts={"query": prompt})
    before = model.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    text = model.tokenizer(prompt + LONG, add_special_tokens=False)["input_ids"][len(before) :]
    limit = len(before) + 2 + min(room, len(text))
    asked: dict[str, Any] = {"input_type": "query", "truncate": truncate, "options": {"max_seq_length": limit}}
    if room < 1 or (truncate == "error" and room < len(text)):
        with pytest.raises(InvalidInput) as refused:
            ask(serve(tmp_path), [LONG], **asked)
        field = "items[0].text" if truncate == "error" else "options.max_seq_length"
        assert refused.value.param == field
        return
    kept = text if room > len(text) else text[:room] if truncate == "end" else text[len(text) - room :]
    ids = [model.tokenizer.cls_token_id, *before, *kept, model.tokenizer.sep_token_id]
    with torch.inference_mode():
        states = model[0].model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    expected = states[0 if pooled else 1 + len(before) :].mean(dim=0).numpy()
    answer = ask(serve(tmp_path), [LONG], **asked)
    assert deviation(answer.vectors, expected[None]) <= 1e-5
    assert (answer.units[0].truncated is not None) == (room < len(text))
