"""Seeded faults of the multi-vector head: each must put the vectors beyond the bound its tests hold without one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sie_pytorch.forward import BuiltRunner
from sie_pytorch.heads.vectors.multivector import MultivectorHead
from sie_pytorch.heads.vectors.steps import UnitLengthStep
from sie_text.encode import TextPreparation
from sie_text.sequences import PackedBatch

from tests.pytorch.encoders import ask, serve
from tests.pytorch.heads.colbert import EXPANSION, encode, furthest, save_colbert
from tests.pytorch.heads.test_multivector import BOUND, MANY, TEXTS

right_kept, right_pass = MultivectorHead._kept, BuiltRunner.forward
right_frame = TextPreparation._framed


def nothing_skipped(head: Any, batch: Any) -> Any:
    return np.ones_like(right_kept(head, batch))


def queries_skipped_too(head: Any, batch: Any) -> Any:
    queries = [replace(sequence, query=False) for sequence in batch.sequences]
    return right_kept(head, PackedBatch(queries))


def not_scaled(step: Any, vectors: Any) -> Any:
    return vectors


def filling_attended(runner: Any, batch: Any) -> Any:
    return right_pass(runner, replace(batch, key_lengths=None))


def not_filled_up(self: Any, *arguments: Any) -> Any:
    row = right_frame(self, *arguments)
    return replace(row, ids=row.ids[: len(row.ids) - row.expanded], expanded=0)


FAULTS: dict[str, tuple[type, str, Callable[..., Any], str]] = {
    "the skip list is forgotten": (MultivectorHead, "_kept", nothing_skipped, "document"),
    "the skip list drops tokens of queries": (MultivectorHead, "_kept", queries_skipped_too, "query"),
    "vectors are not scaled": (UnitLengthStep, "forward", not_scaled, "document"),
    "tokens see the filling": (BuiltRunner, "forward", filling_attended, "query"),
    "queries are not filled up": (TextPreparation, "_framed", not_filled_up, "query"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(
    fault: str, checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_colbert(checkpoint("bert"), tmp_path, expansion=EXPANSION)
    place, name, wrong, input_type = FAULTS[fault]
    monkeypatch.setattr(place, name, wrong)
    ours = ask(serve(tmp_path), TEXTS, input_type=input_type, **MANY)
    assert furthest(ours, encode(model, TEXTS, input_type)) > 100 * BOUND
