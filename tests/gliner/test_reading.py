"""What is no number is handed on, whichever window of a text it is in."""

import math
from typing import Any

import pytest
import torch

from sie_core.contracts import Item
from tests.gliner.loading import asking


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_window_without_numbers_gives_a_score_that_is_none(extractor: Any, place: int) -> None:
    units = list(extractor.prepare([Item(text="the otter saw Wei Novak of the river " * 20)], asking(["person"])))
    assert len(units) > 2
    raw = extractor.run(units)
    place %= len(units)
    ((row, found),) = [(places.index(place), found) for places, found in raw if place in places]
    with torch.inference_mode():
        for copy in found.values():
            copy.tensor[row] = math.nan
    output = extractor.combine(units, extractor.finish(units, raw))
    assert any(math.isnan(entity.score) for entity in output.entities)
