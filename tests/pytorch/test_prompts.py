"""Prompts, instructions and templates: which words go around a text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers.sentence_transformer import modules as st
from sie_pytorch.prompts import LONGEST_PROMPT, MOST_ADDED, Prompt, Prompts, fill_template

from sie_core.contracts import InvalidInput, Item, ModelCard, ModelLoadError
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


def test_jina_s_names_of_two_prompts_are_the_weights_own_or_those_of_queries_and_documents() -> None:
    names = {"retrieval.query": "query", "retrieval.passage": "document"}
    own = Prompts({"query": "", "document": "", **{name: f"{name}: " for name in names}})
    plain, template = (
        Prompts({"query": "q: ", "document": "d: "}),
        {"query_template": "Q {text}", "doc_template": "D {text}"},
    )
    for name, input_type in names.items():
        asked = {"prompt_name": name}
        assert own.choose(task(options=asked | template)) == Prompt(f"{name}: ")
        for given in ({}, template):
            assert plain.choose(task(options=asked | given)) == plain.choose(task(options=given, input_type=input_type))


@pytest.mark.parametrize(("fields", "says"), [({}, "query, document"), ({"instruction": "find"}, "instruction")])
def test_a_prompt_s_name_is_refused_where_it_is_none_or_not_alone(fields: dict[str, str], says: str) -> None:
    prompts = Prompts({"query": "", "document": ""})
    name = "query" if fields else "s2p"
    with pytest.raises(InvalidInput, match=says) as refused:
        prompts.choose(task(options={"prompt_name": name}, **fields))
    assert refused.value.param == "options.prompt_name"


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


def test_a_default_instruction_is_for_queries_alone_without_a_template() -> None:
    prompts = Prompts({"query": "", "document": ""})
    options = {"default_instruction": "search"}
    assert prompts.choose(task(input_type="query", options=options)) == Prompt("search ")
    assert prompts.choose(task(input_type="query", options=options, instruction="")) == Prompt("")
    assert prompts.choose(task(input_type="document", options=options)) == Prompt("")
    assert prompts.choose(task(options=options)) == Prompt("")


def test_a_template_may_hold_braces_and_its_instruction_any_text() -> None:
    assert fill_template('{{"q": "{text}"}} {instruction}', "{text} {x}") == Prompt('{"q": "', '"} {text} {x}')


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


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"instruction": "x" * (LONGEST_PROMPT + 1)}, "instruction"),
        ({"options": {"doc_template": "{text}" + "x" * LONGEST_PROMPT}}, "options.doc_template"),
        (
            {"options": {"doc_template": "{instruction:}" * 999 + "{text}"}, "instruction": "x" * 99},
            "options.doc_template",
        ),
    ],
)
def test_words_around_a_text_are_bounded(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidInput, match=f"{LONGEST_PROMPT} are allowed") as refused:
        Prompts({}).choose(task(**fields))
    assert refused.value.param == param
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
def test_words_around_all_texts_of_a_request_are_bounded(family: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"))
    encoder = serve(tmp_path, family)
    instruction = "x" * LONGEST_PROMPT
    items = [Item(text="a")] * (MOST_ADDED // LONGEST_PROMPT + 1)
    with pytest.raises(InvalidInput, match="send fewer texts") as refused:
        encoder.prepare(items, task(instruction=instruction))
    assert refused.value.param == "instruction"
    assert Prompts({}).choose(task(instruction=instruction), len(items) - 1).prefix == instruction + " "


def test_a_default_prompt_that_is_not_declared_fails_the_load() -> None:
    card = ModelCard(Path(), {}, sentence_transformers={"prompts": {"a": "b"}, "default_prompt_name": "c"})
    with pytest.raises(ModelLoadError, match="'c'"):
        Prompts.of(card)
    assert json.dumps(Prompts.of(ModelCard(Path(), {})).by_name) == '{"query": "", "document": ""}'
