"""The tokens that clients are shown are those the model reads, where they stand in the text."""

from typing import Any

import numpy as np
import pytest

from sie_core.contracts import InvalidInput, Item
from tests.gliner.loading import asking

TEXT = "Old  river, unknownish city\nof käfer"


def test_the_tokens_shown_are_those_of_the_rows_read(extractor: Any) -> None:
    (unit,) = extractor.prepare([Item(text=TEXT)], asking(["city"]))
    row = unit.payload
    (shown,) = extractor.tokenize([TEXT], special=False)
    after_labels = row.ids[np.flatnonzero(row.places)[0] :].tolist()
    assert [token.id for token in shown] == after_labels[: len(shown)]
    assert len(after_labels) - len(shown) == 1  # the special one at the end
    assert all(token.text == TEXT[token.start : token.stop] and token.text.strip() for token in shown)
    assert np.all(np.diff([token.start for token in shown]) >= 0)
    assert not any(token.special for token in shown)


def test_special_tokens_stand_around_and_only_the_first_ones_may_be_asked_for(extractor: Any) -> None:
    (plain,), (framed,) = (extractor.tokenize([TEXT], special=special) for special in (False, True))
    assert [token for token in framed if not token.special] == plain
    assert framed[0].special
    assert framed[0].start is None
    assert extractor.tokenize([TEXT, "", "old"], special=False, most=2)[0] == plain[:2]
    assert extractor.tokenize(["", " "], special=False) == [[], []]


def test_a_text_that_is_not_unicode_is_refused_by_its_place(extractor: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        extractor.tokenize(["old", "a\ud800b"], special=True)
    assert refused.value.param == "inputs[1]"
