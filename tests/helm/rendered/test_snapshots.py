"""The shipped values files render what a reviewer has read."""

from __future__ import annotations

import pytest

from tests.helm.engine import Helm
from tests.helm.rendered.snapshots import FILES, FOLDER, snapshot


@pytest.mark.parametrize("name", FILES)
def test_a_shipped_values_file_renders_what_was_reviewed(helm: Helm, name: str) -> None:
    reviewed = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert snapshot(helm, FILES[name]) == reviewed, "review and commit `python -m tests.helm.rendered.snapshots`"


def test_each_snapshot_is_of_a_file_that_ships() -> None:
    assert {each.stem for each in FOLDER.iterdir()} == set(FILES)
    assert len(FILES) >= 5
