"""The page of the most used models says what serves them today."""

from __future__ import annotations

import pytest
from sie_cpu.builds import choose_build

from tests.pytorch.most_used import MODELS, PAGE, page


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_of_the_most_used_models_says_what_serves_them() -> None:
    try:
        choose_build("float32")
    except OSError as reason:
        pytest.skip(f"without kernels other runners serve: {reason}")
    assert len(MODELS) == 40
    assert page() == PAGE.read_text(), "write it anew: python -m tests.pytorch.most_used"
