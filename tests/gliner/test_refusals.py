"""What cannot be looked for, or looked through, is refused by the name of the field, and what is allowed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sie_gliner.options import LONGEST_LABEL
from sie_kit.comparing import answer_shared

from sie_core.contracts import InvalidInput, Item, ItemOutput, Task
from tests.gliner.checkpoints import POSITIONS
from tests.gliner.loading import answer, asking, extract, load
from tests.gliner.training import TOKENS


@pytest.fixture(scope="session")
def adapters(checkpoint: Callable[..., Path]) -> dict[str, Any]:
    return {kind: load(checkpoint(kind)) for kind in ("span", "bi-span", "relex")}


def refusal(adapter: Any, item: Item, labels: list[str], **fields: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        list(adapter.prepare([Item(text="old river"), item], asking(labels, **fields)))
    return refused.value


LONG = "the new animal in Berlin and the food of a person, quiet and unknownish"


def extract_as_queued(adapter: Any, texts: list[str], task: Task) -> list[ItemOutput]:
    """Extract as the engine does: units of equal keys share a run."""
    return answer_shared(adapter, [Item(text=text) for text in texts], task)


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (Item(), "missing"),
        (Item(text="a\ud800b"), "surrogate"),
    ],
)
def test_what_is_no_text_is_refused(adapters: dict[str, Any], item: Item, told: str) -> None:
    error = refusal(adapters["span"], item, ["city"])
    assert (error.code, error.param) == ("INVALID_INPUT", "items[1].text")
    assert told in error.message


@pytest.mark.parametrize("kind", ["span", "bi-span", "relex"])
def test_a_text_without_words_has_no_entities_and_changes_no_other_s(adapters: dict[str, Any], kind: str) -> None:
    task, blanks = asking(["city", "new old"], threshold=0.01), ["", " \n\t"]
    alone = extract(adapters[kind], [LONG], task)
    mixed = extract_as_queued(adapters[kind], [*blanks[:1], LONG, *blanks[1:]], task)
    assert [output.entities for output in mixed] == [(), alone[0].entities, ()]
    assert alone[0].entities
    assert [output.entities for output in extract_as_queued(adapters[kind], blanks, task)] == [(), ()]


def test_a_text_of_marks_without_tokens_is_blank(extractor: Any) -> None:
    (answer,) = extract_as_queued(extractor, ["\u0301 \u200b"], asking(["city"]))
    assert answer.entities == ()


@pytest.mark.parametrize("kind", ["span", "bi-span", "relex"])
@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["city", "old " * POSITIONS], "shorten it"),
        ([f"place {number}" for number in range(2000)], "fewer"),
        (["city", "a [SEP] b"], "keeps for itself"),
        (["a\udfffb"], "surrogate"),
    ],
)
def test_a_label_that_cannot_be_told_to_the_model_is_refused(
    adapters: dict[str, Any], kind: str, labels: list[str], told: str
) -> None:
    error = refusal(adapters[kind], Item(text="a"), labels)
    assert (error.code, error.param) == ("INVALID_INPUT", "labels")
    assert told in error.message


@pytest.mark.parametrize("marker", ["<<ENT>>", "<<SEP>>", "[CLS]"])
def test_a_label_never_becomes_a_marker_of_the_prompt(adapters: dict[str, Any], marker: str) -> None:
    assert refusal(adapters["span"], Item(text="a"), ["x", f"city {marker} person"]).param == "labels"


def test_a_label_without_tokens_is_refused(extractor: Any) -> None:
    error = refusal(extractor, Item(text="a"), ["city", "\u200b"])
    assert error.param == "labels"
    assert "sees nothing" in error.message
    assert "\u200b" not in error.message


def test_relation_labels_are_held_to_the_same_rules(adapters: dict[str, Any]) -> None:
    for relations in (
        ["[SEP]"],
        ["x" + " " * LONGEST_LABEL],
        ["old " * POSITIONS],
        [f"place {number}" for number in range(99)],
    ):
        error = refusal(adapters["relex"], Item(text="a"), ["city"], relation_labels=relations)
        assert error.param == "options.relation_labels"


def test_an_instruction_nobody_reads_is_refused(extractor: Any) -> None:
    task = replace(asking(["city"]), instruction="only large ones")
    with pytest.raises(InvalidInput) as refused:
        list(extractor.prepare([Item(text="a")], task))
    assert refused.value.param == "instruction"


def test_markers_in_a_text_are_words_like_others(adapters: dict[str, Any]) -> None:
    text = "old <<ENT>> river [SEP] note <<SEP>> [CLS] of"
    (output,) = extract(adapters["span"], [text], asking(["city", "place"], threshold=0.0, flat_ner=False))
    assert {entity.label for entity in output.entities} <= {"city", "place"}
    assert max(entity.end for entity in output.entities) == len(text)


def test_a_word_longer_than_a_window_is_cut_and_said_so_or_refused(extractor: Any) -> None:
    text = "the " + "東京" * 2 * TOKENS + " saw Wei Novak of"
    units = list(extractor.prepare([Item(text="the otter of"), Item(text=text)], asking(["person"])))
    cuts = [unit.truncated for unit in units]
    assert [cut is not None for cut in cuts] == [False, True] + [False] * (len(cuts) - 2)
    assert cuts[1].kept < TOKENS + 8 < 4 * TOKENS < cuts[1].tokens
    assert all(len(unit.payload.ids) <= TOKENS for unit in units)
    (_, output) = answer(extractor, units)
    assert [entity.text for entity in output.entities] == ["Wei Novak"]
    error = refusal(extractor, Item(text=text), ["city"], truncate="error")
    assert (error.code, error.param) == ("INPUT_TOO_LONG", "items[1].text")


def test_a_text_of_many_windows_is_not_cut(adapters: dict[str, Any]) -> None:
    units = list(adapters["span"].prepare([Item(text="old river " * 500)], asking(["city"], truncate="error")))
    assert all(unit.truncated is None for unit in units)
