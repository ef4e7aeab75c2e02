"""Every pooling says of a state that is no number that it is none."""

import math

import numpy as np
import pytest
import torch
from sie_pytorch.heads.pooling import POOLERS
from sie_text.heads import find_spans, last_others


@pytest.mark.parametrize("mode", sorted(POOLERS))
def test_a_state_that_is_no_number_is_seen_in_its_sequence_alone(mode: str) -> None:
    states = torch.randn((6, 4), generator=torch.Generator().manual_seed(1))
    states[3:] = math.nan
    spans = find_spans(np.array([0, 3, 6]), np.array([0, 0]), lambda arrays: [*map(torch.from_numpy, arrays)])
    pooled = POOLERS[mode](states, spans)
    assert pooled[0].isfinite().all()
    assert pooled[1].isnan().all()


def test_one_such_state_among_others_is_not_passed_over_for_the_largest() -> None:
    states = torch.tensor([[1.0, 2.0], [math.nan, 3.0], [0.0, 1.0]])
    spans = find_spans(np.array([0, 3]), np.array([0]), lambda arrays: [*map(torch.from_numpy, arrays)])
    assert POOLERS["max"](states, spans).isnan().tolist() == [[True, False]]


def test_the_last_token_that_is_no_padding_is_found_and_of_nothing_but_padding_the_first() -> None:
    ids = np.array([5, 6, 0, 0, 0, 7, 0, 0, 0, 8])
    assert last_others(ids, np.array([0, 4, 6, 9, 10]), 0).tolist() == [1, 5, 6, 9]
