"""Long texts are cut at either end of the text itself; prompts, templates' words and special tokens are never cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sie_text.encode import TextPreparation
from sie_text.lengths import Lengths
from sie_text.pairs import PairFrame, PairPreparation, format_template
from sie_text.prompts import Prompts
from sie_text.truncation import cut

from sie_core.contracts import InvalidInput, Item, Task, Truncation
from tests.text.words import ids, tokenizer, words

PROMPT = "find this : "
"""Three tokens; with the special ones before and after it takes five."""
TEXT = "a b c d e f"


def lengths(limit: int | None) -> Lengths:
    return Lengths(limit, limit, limit, most=limit, least=1)


def sequence(truncate: str | None, *, limit: int | None, pooled: bool = True, start: bool = False, **asked: Any) -> Any:
    preparation = TextPreparation(
        "test/model",
        tokenizer(cuts_start=start),
        Prompts({"query": PROMPT, "document": ""}),
        lengths(limit),
        pools_prompt=pooled,
        takes_ids=True,
    )
    asked = {"input_type": "query", **asked}
    item = asked.pop("item", Item(text=TEXT))
    (made,) = preparation.sequences([item], Task("encode", ("dense",), truncate=truncate, **asked))
    return made


KEPT = {
    ("end", 8): "[ find this : a b c ]",
    ("end", 6): "[ find this : a ]",
    ("start", 8): "[ find this : d e f ]",
    ("start", 6): "[ find this : f ]",
    (None, 8): "[ find this : a b c ]",
}


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(("truncate", "limit"), KEPT)
def test_a_limit_above_the_prompt_cuts_the_text_alone(truncate: str | None, limit: int, pooled: bool) -> None:
    made = sequence(truncate, limit=limit, pooled=pooled)
    assert words(made.ids) == KEPT[truncate, limit]
    assert made.truncated == Truncation(tokens=11, kept=limit)
    # Pooled or not, what is left out of pooling are [CLS] and the three tokens of the prompt.
    assert words(made.ids[made.excluded :]) == KEPT[truncate, limit].removeprefix("" if pooled else "[ find this : ")


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("truncate", ["start", "end", None])
@pytest.mark.parametrize("limit", [3, 4, 5])
def test_a_limit_at_or_below_the_prompt_is_refused(truncate: str | None, limit: int, pooled: bool) -> None:
    with pytest.raises(InvalidInput, match=f"of the {limit} tokens it may have, .* take 5, which leaves none") as no:
        sequence(truncate, limit=limit, pooled=pooled)
    assert no.value.param == "options.max_seq_length"


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("limit", [3, 5, 6, 10])
def test_a_cut_that_is_refused_says_how_long_the_text_is(limit: int, pooled: bool) -> None:
    with pytest.raises(InvalidInput, match=f"has 11 tokens, and test/model takes {limit}: shorten") as refused:
        sequence("error", limit=limit, pooled=pooled)
    assert (refused.value.param, refused.value.code) == ("items[0].text", "INPUT_TOO_LONG")


@pytest.mark.parametrize("truncate", ["start", "end", "error", None])
@pytest.mark.parametrize("limit", [None, 11, 12])
def test_a_text_within_the_limit_is_whole(truncate: str | None, limit: int | None) -> None:
    made = sequence(truncate, limit=limit, pooled=False)
    assert words(made.ids) == "[ find this : a b c d e f ]"
    assert (made.truncated, made.excluded) == (None, 4)


@pytest.mark.parametrize("truncate", ["start", "end", "error", None])
def test_an_empty_text_may_fill_the_limit_with_its_prompt(truncate: str | None) -> None:
    assert words(sequence(truncate, limit=5, item=Item(text="")).ids) == "[ find this : ]"


def test_weights_that_cut_at_the_start_cut_the_text_and_no_prompt() -> None:
    assert words(sequence(None, limit=8, start=True).ids) == "[ find this : d e f ]"
    assert words(sequence("end", limit=8, start=True).ids) == "[ find this : a b c ]"


@pytest.mark.parametrize(("truncate", "kept"), [("end", "[ find a b thanks ! ]"), ("start", "[ find e f thanks ! ]")])
def test_the_words_of_a_template_stay_on_both_sides(truncate: str, kept: str) -> None:
    options = {"query_template": "find {text} thanks!"}
    assert words(sequence(truncate, limit=7, options=options).ids) == kept
    with pytest.raises(InvalidInput, match="take 5, which leaves none"):
        sequence(truncate, limit=5, options=options)


@pytest.mark.parametrize(("truncate", "kept"), [("end", "[ find this : a b ]"), ("start", "[ find this : e f ]")])
def test_given_token_ids_are_cut_as_their_text_is(truncate: str, kept: str) -> None:
    assert words(sequence(truncate, limit=7, item=Item(token_ids=tuple(ids(TEXT)))).ids) == kept


def test_a_token_of_both_prompt_and_text_belongs_to_the_text() -> None:
    """`find thisb` has no token of the prompt alone but the first: `thisb` is one word."""
    made = sequence("start", limit=4, options={"query_template": "find this{text}"}, item=Item(text="b c d"))
    assert words(made.ids) == "[ find d ]"


@pytest.mark.parametrize("start", [False, True])
def test_a_cut_keeps_what_is_around_and_as_much_as_there_is_room_for(start: bool) -> None:
    content = np.arange(10)
    for before in range(4):
        for after in range(4):
            for room in range(before + after + 1, 12):
                kept = cut(content, room, start=start, before=before, after=after).tolist()
                inner = content[before : 10 - after].tolist()
                most = min(room, 10) - before - after
                between = inner[len(inner) - most :] if start else inner[:most]
                assert kept == [*range(before), *between, *range(10 - after, 10)]


def pair(truncate: str | None, limit: int, truncation: Any = "longest_first", **asked: Any) -> tuple[str, Any]:
    own = tokenizer()
    preparation = PairPreparation(
        "test/model",
        own,
        PairFrame.of(own.core),
        Prompts({"query": PROMPT, "document": ""}),
        lengths(limit),
        truncation,
        asked.pop("template", None),
    )
    query, document = Item(text=asked.pop("query", "a b c")), Item(text=asked.pop("document", "d e f g h"))
    task = Task("score", input_type="query", query=query, truncate=truncate, **asked)
    (made,) = preparation.score_sequences([document], task)
    return words(made.ids), made.truncated


@pytest.mark.parametrize(
    ("truncation", "truncate", "limit", "kept"),
    [
        ("only_second", "end", 11, "[ find this : a b c ] d e ]"),
        ("only_second", "start", 11, "[ find this : a b c ] g h ]"),
        ("only_first", "end", 12, "[ find this : a ] d e f g h ]"),
        ("only_first", "start", 12, "[ find this : c ] d e f g h ]"),
        ("longest_first", "end", 13, "[ find this : a b ] d e f g h ]"),
        ("longest_first", "start", 11, "[ find this : c ] e f g h ]"),
        # Half of the room would be three tokens, which the prompt alone takes: the document gives more.
        ("longest_first", "end", 9, "[ find this : a ] d e ]"),
        ("longest_first", "start", 9, "[ find this : c ] g h ]"),
        ("longest_first", "end", 8, "[ find this : a ] d ]"),
    ],
)
def test_the_prompt_of_a_pair_s_query_is_never_cut(truncation: str, truncate: str, limit: int, kept: str) -> None:
    assert pair(truncate, limit, truncation) == (kept, Truncation(14, limit))


@pytest.mark.parametrize(
    ("truncation", "limit", "param"),
    [
        ("longest_first", 7, "options.max_seq_length"),
        ("only_first", 11, "items[0].text"),
        ("only_second", 9, "query.text"),
    ],
)
@pytest.mark.parametrize("truncate", ["start", "end", "error"])
def test_a_pair_whose_prompt_leaves_no_room_is_refused(truncation: str, limit: int, param: str, truncate: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        pair(truncate, limit, truncation)
    assert refused.value.param == param


def test_a_template_s_query_and_words_stay_whole() -> None:
    template = format_template("find {query}: {document} thanks!")
    whole = "find a b c : d e f g h thanks !"
    assert pair("end", 12, template=template) == (whole, None)
    assert pair("end", 9, template=template) == ("find a b c : d e thanks !", Truncation(12, 9))
    assert pair("start", 9, template=template) == ("find a b c : g h thanks !", Truncation(12, 9))
    for truncate, limit, param in (("error", 9, "items[0].text"), ("end", 7, "query.text")):
        with pytest.raises(InvalidInput) as refused:
            pair(truncate, limit, template=template)
        assert (refused.value.param, refused.value.code) == (param, "INPUT_TOO_LONG")
