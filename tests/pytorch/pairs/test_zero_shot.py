"""Classification by entailment, against transformers' pipeline `zero-shot-classification` on the same files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as tf
from transformers.pipelines import ZeroShotClassificationPipeline

from sie_core.contracts import InvalidInput, Item, Task
from tests.pytorch.pairs.support import (
    DOCUMENTS,
    NLI,
    ask,
    change_json,
    deviation,
    extract,
    pairs,
    reference,
    score,
    serve,
    write_classifier,
)

BOUND = 1e-5
TEXTS = tuple(text for text in DOCUMENTS if text)
LABELS = ("search engines", "animals", "die Straße \N{OWL}")
LONG = "the model reads both and the index keeps what it has read " * 12
ORDERS = {
    "last": NLI,
    "first": {0: "ENTAILMENT", 1: "neutral", 2: "contradiction"},
    "of two": {0: "entailment", 1: "not_entailment"},
}


def pipeline(folder: Path, **arguments: Any) -> ZeroShotClassificationPipeline:
    tokenizer = tf.AutoTokenizer.from_pretrained(folder, local_files_only=True, **arguments)
    model = tf.AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    return ZeroShotClassificationPipeline(model=model, tokenizer=tokenizer, device="cpu")


def expected(pipe: ZeroShotClassificationPipeline, texts: Any, *labels: str, **asked: Any) -> list[dict[str, float]]:
    answers = pipe(list(texts), candidate_labels=list(labels), **asked)
    return [dict(zip(each["labels"], each["scores"], strict=True)) for each in answers]


def assert_same(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> None:
    assert [list(each) for each in ours] == [list(each) for each in theirs]
    assert deviation([list(each.values()) for each in ours], [list(each.values()) for each in theirs]) <= BOUND


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "distilbert", "deberta-v2", "qwen3", "bart"])
def test_labels_are_judged_as_the_pipeline_judges_them(name: str, multi_label: bool, tmp_path: Path) -> None:
    folder = write_classifier(name, tmp_path, labels=NLI)
    adapter, pipe = serve(folder), pipeline(folder)
    assert adapter.facts.operations == ("score", "extract")
    assert adapter.facts.takes_labels == "required"
    asked = {"multi_label": multi_label}
    ours = extract(adapter, TEXTS, *LABELS, options=asked)
    assert np.std([list(each.values()) for each in ours]) > 0.01
    assert_same(ours, expected(pipe, TEXTS, *LABELS, **asked))
    assert_same([extract(adapter, [text], *LABELS, options=asked)[0] for text in TEXTS], ours)


@pytest.mark.parametrize("order", ORDERS)
def test_the_config_says_which_label_is_entailment(order: str, tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path, labels=ORDERS[order])
    adapter, pipe = serve(folder), pipeline(folder)
    for labels in (LABELS, LABELS[:1]):
        for multi_label in (False, True):
            asked = {"multi_label": multi_label}
            assert_same(extract(adapter, TEXTS, *labels, options=asked), expected(pipe, TEXTS, *labels, **asked))


def test_a_template_makes_the_hypotheses(tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path, labels=NLI)
    adapter, pipe = serve(folder), pipeline(folder)
    asked = {"hypothesis_template": "In diesem Text geht es um {}."}
    assert_same(extract(adapter, TEXTS, *LABELS, options=asked), expected(pipe, TEXTS, *LABELS, **asked))
    for template in ("{}" + "." * 40_000, "no place", "{} and {}", "{other}", "{0.__class__}", "{", "{!r}"):
        with pytest.raises(InvalidInput) as refused:
            extract(adapter, TEXTS, "a", options={"hypothesis_template": template})
        assert refused.value.param == "options.hypothesis_template"


def test_a_long_text_is_cut_and_a_label_never(tmp_path: Path) -> None:
    folder = write_classifier("roberta", tmp_path, labels=NLI)
    change_json(folder / "tokenizer_config.json", model_max_length=60)
    adapter, pipe = serve(folder), pipeline(folder)
    texts = [LONG, "short", LONG * 2]
    assert_same(extract(adapter, texts, *LABELS), expected(pipe, texts, *LABELS))
    units = list(adapter.prepare([Item(text=text) for text in texts], Task("extract", labels=LABELS)))
    assert [unit.truncated is not None for unit in units] == [True] * 3 + [False] * 3 + [True] * 3
    assert {unit.tokens for unit in units if unit.truncated} == {60}
    with pytest.raises(InvalidInput) as refused:
        extract(adapter, ["a"], "short", LONG)
    assert (refused.value.param, refused.value.code) == ("labels", "INPUT_TOO_LONG")
    assert "allow truncation" not in refused.value.message
    with pytest.raises(InvalidInput) as refused:
        extract(adapter, ["a", LONG], "short", truncate="error")
    assert (refused.value.param, refused.value.code) == ("items[1].text", "INPUT_TOO_LONG")


def test_requests_with_other_labels_and_scores_share_a_batch(tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path, labels=NLI)
    adapter = serve(folder)
    items = [Item(text=text) for text in TEXTS]
    tasks = [
        Task("extract", labels=LABELS),
        Task("extract", labels=("one", "two"), options={"multi_label": True, "hypothesis_template": "{}?"}),
        Task("score", query=Item(text="a query")),
    ]
    units = [list(adapter.prepare(items, task)) for task in tasks]
    together = [unit for each in units for unit in each]
    assert len({unit.key for unit in together}) == 1
    finished = dict(zip(map(id, together), adapter.finish(together, adapter.run(together)), strict=True))
    for task, each in zip(tasks, units, strict=True):
        alone = ask(adapter, items, task)
        for index, answer in enumerate(alone):
            own = [unit for unit in each if unit.item == index]
            outputs = [finished[id(unit)] for unit in own]
            shared = adapter.combine(own, outputs) if len(own) > 1 else outputs[0]
            if task.operation == "score":
                assert shared.score == pytest.approx(answer.score, abs=BOUND)
            else:
                ours, theirs = shared.classifications or (), answer.classifications or ()
                assert [one.label for one in ours] == [one.label for one in theirs]
                assert deviation([one.score for one in ours], [one.score for one in theirs]) <= BOUND


def test_an_entailment_model_scores_by_entailment(tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path, labels=ORDERS["first"])
    assert deviation(score(serve(folder)), reference(folder).predict(pairs())[:, 0]) <= BOUND


def test_too_many_pairs_are_refused(tmp_path: Path) -> None:
    adapter = serve(write_classifier("bert", tmp_path, labels=NLI))
    with pytest.raises(InvalidInput, match="8192") as refused:
        extract(adapter, ["a"] * 1000, *(f"label {number}" for number in range(9)))
    assert refused.value.param == "labels"


def test_an_instruction_nobody_reads_is_refused(tmp_path: Path) -> None:
    adapter = serve(write_classifier("bert", tmp_path, labels=NLI))
    with pytest.raises(InvalidInput, match="hypothesis_template") as refused:
        extract(adapter, ["a"], "one", instruction="be strict")
    assert refused.value.param == "instruction"
