"""A text encoder composed of a recipe and heads: those of the files, and others beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from sie_pytorch.heads import (
    Head,
    HeadContext,
    HeadMaker,
    Output,
    Spans,
    Upload,
    compose,
    find_spans,
    head_makers,
    pool,
)
from sie_text.recipe import NotUnderstoodError, read_recipe
from sie_text.sequences import PackedBatch, TokenSequence

from sie_core.contracts import Adapter, Classification, FamilyUnfitError, Item, ItemOutput, Task
from tests.pytorch.encoders import context

TEXTS = ["fox", "the lazy dog jumps over the engine"]


class Lengths(Head):
    """Says how long the mean state of a text is."""

    output: Output = "classifications"
    dims = 1
    memory_bytes = 0
    notes = MappingProxyType({"lengths": "of mean states"})

    def __init__(self, made: HeadContext) -> None:
        self.made = made

    def lay_out(self, batch: PackedBatch, upload: Upload) -> Spans:
        return find_spans(batch.cu_seqlens, batch.excluded, upload)

    def compute(self, states: torch.Tensor, layout: Spans, choice: None) -> tuple[torch.Tensor]:
        return (pool(states, layout, ("mean",)).norm(dim=1),)

    def finish(
        self, sequences: Sequence[TokenSequence], layout: Spans, arrays: Sequence[Any], choice: None
    ) -> list[ItemOutput]:
        return [ItemOutput(classifications=(Classification("length", float(each)),)) for each in arrays[0]]


def composed(folder: Path, *makers: HeadMaker, of_files: bool = True) -> Adapter:
    given = context(folder)
    assert given.card is not None
    recipe = read_recipe(given.card)
    return compose(given, recipe, [*(head_makers(recipe) if of_files else ()), *makers])


def run(adapter: Adapter, task: Task) -> Sequence[ItemOutput]:
    units = list(adapter.prepare([Item(text=text) for text in TEXTS], task))
    return adapter.finish(units, adapter.run(units))


def test_a_head_beside_those_of_the_files_serves_another_operation(checkpoint: Callable[[str], Path]) -> None:
    adapter = composed(checkpoint("bert"), Lengths)
    facts = adapter.facts
    assert (facts.operations, facts.outputs) == (("encode", "extract"), ("dense",))
    assert facts.notes["lengths"] == "of mean states"
    assert facts.takes_lora
    vectors = run(adapter, Task("encode", ("dense",)))
    lengths = run(adapter, Task("extract"))
    for vector, length in zip(vectors, lengths, strict=True):
        assert vector.classifications is length.dense is None
        assert vector.dense is not None
        assert length.classifications is not None
        assert length.classifications[0].score == pytest.approx(float(np.linalg.norm(vector.dense)), rel=1e-5)


def test_a_head_alone_serves_its_operation_alone(checkpoint: Callable[[str], Path]) -> None:
    facts = composed(checkpoint("bert"), Lengths, of_files=False).facts
    assert (facts.operations, facts.outputs, facts.dims) == (("extract",), (), {})


def test_a_head_is_told_what_it_stands_on(checkpoint: Callable[[str], Path]) -> None:
    made: list[HeadContext] = []

    def watched(given: HeadContext) -> Head:
        made.append(given)
        return Lengths(given)

    folder = checkpoint("roberta")
    composed(folder, watched)
    (given,) = made
    assert (given.hidden_size, given.precision, given.device) == (32, "float32", torch.device("cpu"))
    assert given.card.path == folder
    assert given.tokenizer.framing == 2


def test_what_no_head_understands_is_left_to_the_next_family(checkpoint: Callable[[str], Path]) -> None:
    def refuses(given: HeadContext) -> Head:
        raise NotUnderstoodError("its moods are many")

    with pytest.raises(FamilyUnfitError, match=r"does not serve test/model: its moods are many\.$"):
        composed(checkpoint("bert"), refuses)


def test_two_heads_of_one_output_are_refused(checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match="two heads make classifications"):
        composed(checkpoint("bert"), Lengths, Lengths)


def test_prompts_of_a_recipe_stand_before_texts(checkpoint: Callable[[str], Path]) -> None:
    given = context(checkpoint("bert"))
    assert given.card is not None
    recipe = replace(read_recipe(given.card), prompts=(("query", "find: "),))
    adapter = compose(given, recipe, head_makers(recipe))
    (plain,) = adapter.prepare([Item(text="fox")], Task("encode", ("dense",)))
    (query,) = adapter.prepare([Item(text="fox")], Task("encode", ("dense",), input_type="query"))
    assert query.tokens > plain.tokens
