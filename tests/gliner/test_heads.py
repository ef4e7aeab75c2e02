"""Every kind of head gives gliner's own logits, of each row of a batch as of the row alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sie_gliner.heads.relating.adjacency import ADJACENCIES
from sie_gliner.heads.relating.triples import TRIPLES

from sie_core.contracts import Item
from tests.gliner.checkpoints import KINDS, SPAN_MODES
from tests.gliner.library import library
from tests.gliner.loading import asking, load

TEXTS = (
    "old note of a city with a river",
    "the new animal in Berlin and the food of a person, quiet and unknownish",
    "place",
    "the the the river note in on with",
)
FEW = ("old city", "river in the note")
"""For triples, of which gliner computes each label of each pair apart, with 768 numbers and some with a matrix."""
LABELS = ("city", "new old")
RELATIONS = ("name of", "river", "in")
FUSION = {"post_fusion_schema": "l2l-l2t-t2t-t2l", "num_post_fusion_layers": 2}
CONTEXTS: dict[str, dict[str, Any]] = {
    "rnn": {"model_type": "rnn"},
    "one way": {"model_type": "rnn", "bidirectional": False, "hidden_size": 24, "num_hidden_layers": 2},
    "deberta": {"model_type": "deberta-v2", "num_attention_heads": 2},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in (*KINDS, *SPAN_MODES)},
    "max": ("span", {"subtoken_pooling": "max"}),
    "two LSTM layers": ("span", {"num_rnn_layers": 2}),
    "labels by their first token": ("span", {"embed_ent_token": False}),
    "projected": ("span", {"hidden_size": 48}),
    "labels projected": ("bi-token", {"hidden_size": 48}),
    "listed by a bi-encoder": ("bi-token", {"represent_spans": True}),
    "layers fused": ("token", {"fuse_layers": True}),
    "layers fused twice": ("bi-span", {"fuse_layers": True}),
    "words and labels fused": ("bi-span", FUSION),
    "words and labels fused, by word": ("bi-token", FUSION),
    "a fusion that is not used": ("span", FUSION),
    **{f"context: {name}": ("span", {"span_encoder_config": each}) for name, each in CONTEXTS.items()},
    "context: of listed spans": ("token-spans", {"span_encoder_config": CONTEXTS["rnn"]}),
    "relations by the tokens of their labels": ("relex", {"embed_rel_token": False}),
    **{f"paired by {name}": ("relex", {"relations_layer": name}) for name in ADJACENCIES},
    # gliner's interactions have 768 numbers, whatever the model has.
    **{
        f"triples by {name}": ("relex-pairs", {"triples_layer": name, "hidden_size": 768, "num_rnn_layers": 0})
        for name in TRIPLES
    },
    "no triples": ("relex", {"triples_layer": None}),
}
CLOSE = 1e-5
"""How far sums of float32 may be from those of float64, as a part of the largest logit."""


@pytest.mark.parametrize("case", CASES)
def test_the_logits_of_each_row_are_gliner_s(case: str, tmp_path: Path) -> None:
    kind, config = CASES[case]
    texts = FEW if case.startswith("triples by") else TEXTS
    folder = library().write(tmp_path, kind, **config)
    adapter, related = load(folder), RELATIONS if kind.startswith("relex") else ()
    asked = asking(LABELS, **({"relation_labels": list(related)} if related else {}))
    rows = [unit.payload for unit in adapter.prepare([Item(text=text) for text in texts], asked)]
    forward = adapter._forward
    found = forward.logits(forward.encode(rows), range(len(rows)))
    words = [[row.text[start:end] for start, end in zip(row.starts, row.ends, strict=True)] for row in rows]
    expected = library().logits(folder, words, LABELS, related)
    pairs = [pair for number, row in enumerate(rows) for pair in of_row(found, expected, number, row.words)]
    assert [ours.shape for ours, _ in pairs] == [theirs.shape for _, theirs in pairs]
    assert sum(theirs.size for _, theirs in pairs) > 50
    largest = max(np.abs(theirs).max(initial=1) for _, theirs in pairs)
    assert max(np.abs(ours - theirs).max(initial=0) for ours, theirs in pairs) <= CLOSE * largest


def of_row(found: dict[str, torch.Tensor], expected: Any, number: int, words: int) -> Any:
    """Pair the logits of one row with gliner's."""
    theirs = expected[f"logits-{number}"]
    if "grid" in found:
        first, width = np.meshgrid(np.arange(words), np.arange(theirs.shape[1]), indexing="ij")
        inside = first + width < words
        yield found["grid"][number, :words].numpy()[inside], theirs[inside]
    else:
        yield found["words"][number, :words].numpy(), theirs
    for ours, places, name in (("spans", "span_ends", "span"), ("relations", "pairs", "rel")):
        if ours in found:
            own = found[places][:, 0] == number
            listed = expected[f"{name}_mask-{number}"].astype(bool)
            yield found[ours][own].numpy(), expected[f"{name}_logits-{number}"][listed]
