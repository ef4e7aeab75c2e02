"""Windows hold what they may, cover every word, own each once, and see whole what they own."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sie_gliner.text.windows import Window, WindowSize, split


@st.composite
def cases(draw):
    tokens = draw(st.integers(4, 60))
    words = draw(st.integers(2, 40))
    overlap = draw(st.integers(0, words // 2))
    counts = draw(st.lists(st.integers(1, tokens), min_size=1, max_size=200))
    return np.array(counts), WindowSize(words, tokens, overlap)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_windows_hold_what_they_may_and_own_every_word_once(case):
    counts, size = case
    windows = split(counts, size)
    for window in windows:
        assert 1 <= window.last - window.first <= size.words
        assert counts[window.first : window.last].sum() <= size.tokens
        assert window.first <= window.own_first <= window.own_last <= window.last
    for before, after in pairwise(windows):
        assert before.first < after.first <= before.last < after.last
        assert before.own_last == after.own_first
    assert (windows[0].first, windows[0].own_first) == (0, 0)
    assert windows[-1].last == windows[-1].own_last == len(counts)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 400), st.integers(1, 12))
def test_the_owner_of_a_first_word_sees_all_of_an_entity(words, widest):
    size = WindowSize(words=48, tokens=1000, overlap=2 * widest)
    for window in split(np.ones(words, dtype=np.int64), size):
        for first in range(window.own_first, window.own_last):
            assert min(first + widest, words) <= window.last


def test_a_text_that_fits_is_one_window():
    assert split(np.array([3, 4, 5]), WindowSize(3, 12, 1)) == [Window(0, 3, 0, 3)]
    assert len(split(np.array([3, 4, 5]), WindowSize(3, 11, 1))) == 2
    assert len(split(np.array([3, 4, 5]), WindowSize(2, 12, 1))) == 2
