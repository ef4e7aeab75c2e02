"""Prompts, instructions and templates: which words stand around a text."""

import json
from pathlib import Path
from typing import Any

import pytest
from sie_text.prompts import LONGEST_PROMPT, Prompt, Prompts

from sie_core.catalog.cards import read_card
from sie_core.contracts import InputType, InvalidInput, ModelCard, ModelLoadError, Task


def task(**fields: Any) -> Task:
    return Task("encode", ("dense",), **fields)


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


NAMES = {
    "query": ["query", "search_query", "retrieval.query", "Retrieval-query"],
    "document": ["document", "passage", "corpus", "search_document", "retrieval.passage", "Retrieval-document"],
}


@pytest.mark.parametrize("role", NAMES)
def test_a_role_s_name_finds_the_prompt_of_its_role_by_whichever_name_the_weights_have_it(role: InputType) -> None:
    for own in NAMES[role]:
        prompts = Prompts({"query": "", "document": "", "other": "o: ", own: "own: "})
        for asked in NAMES[role][1:]:
            named = task(options={"prompt_name": asked}, input_type=role)
            assert prompts.choose(named) == Prompt("own: ")
            assert prompts.passed_over(named) == ()
        assert prompts.choose(task(input_type=role)) == Prompt("own: " if own == role else "")
    both = Prompts({"query": "q: ", "document": "d: ", NAMES[role][1]: "", NAMES[role][2]: "own: "})
    assert both.choose(task(options={"prompt_name": NAMES[role][3]})) == Prompt(f"{role[0]}: ")
    assert both.choose(task(options={"prompt_name": NAMES[role][1]})) == Prompt("")
    assert both.choose(task(options={"prompt_name": NAMES[role][2]})) == Prompt("own: ")


@pytest.mark.parametrize(
    ("prompts", "fields", "told"),
    [
        ({"query": "q: "}, {"input_type": "document"}, True),
        ({"other": "o: "}, {"input_type": "query", "options": {"prompt_name": "search_query"}}, True),
        ({"other": "o: "}, {"options": {"prompt_name": "passage"}}, True),
        ({"query": "q: "}, {"input_type": "query"}, False),
        ({"query": "q: "}, {}, False),
        ({"query": "q: "}, {"input_type": "document", "instruction": ""}, False),
        ({"query": "q: "}, {"input_type": "document", "options": {"doc_template": "{text}"}}, False),
        ({}, {"input_type": "document"}, False),
    ],
)
def test_a_role_without_a_prompt_is_told_where_the_weights_have_some(
    prompts: dict[str, str], fields: dict[str, Any], told: bool
) -> None:
    found = Prompts({"query": "", "document": "", **prompts}).passed_over(task(**fields))
    assert found == (("input_type",) if told else ())


@pytest.mark.parametrize(
    ("declared", "told"),
    [({"document": ""}, False), ({"passage": ""}, False), ({"passage": "p: "}, True), ({}, True)],
)
def test_an_empty_prompt_that_the_weights_declare_is_one(tmp_path: Path, declared: dict[str, str], told: bool) -> None:
    files = {"prompts": {"query": "Instruct: ", **declared}}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(files))
    (tmp_path / "config.json").write_text("{}")
    prompts = Prompts.of(read_card(tmp_path))
    assert prompts.passed_over(task(input_type="document")) == (("input_type",) if told else ())


@pytest.mark.parametrize(("fields", "says"), [({}, "query, document"), ({"instruction": "find"}, "instruction")])
def test_a_prompt_s_name_is_refused_where_it_is_none_or_not_alone(fields: dict[str, str], says: str) -> None:
    prompts = Prompts({"query": "", "document": ""})
    name = "query" if fields else "s2p"
    with pytest.raises(InvalidInput, match=says) as refused:
        prompts.choose(task(options={"prompt_name": name}, **fields))
    assert refused.value.param == "options.prompt_name"


def test_a_default_instruction_is_for_queries_alone_without_a_template() -> None:
    prompts = Prompts({"query": "", "document": ""})
    options = {"default_instruction": "search"}
    assert prompts.choose(task(input_type="query", options=options)) == Prompt("search ")
    assert prompts.choose(task(input_type="query", options=options, instruction="")) == Prompt("")
    assert prompts.choose(task(input_type="document", options=options)) == Prompt("")
    assert prompts.choose(task(options=options)) == Prompt("")


def test_a_template_may_hold_braces_and_its_instruction_any_text() -> None:
    asked = task(options={"doc_template": '{{"q": "{text}"}} {instruction}'}, instruction="{text} {x}")
    assert Prompts({}).choose(asked) == Prompt('{"q": "', '"} {text} {x}')


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


def test_a_default_prompt_that_is_not_declared_fails_the_load() -> None:
    card = ModelCard(Path(), {}, sentence_transformers={"prompts": {"a": "b"}, "default_prompt_name": "c"})
    with pytest.raises(ModelLoadError, match="'c'"):
        Prompts.of(card)
    assert json.dumps(Prompts.of(ModelCard(Path(), {})).by_name) == '{"query": "", "document": ""}'
