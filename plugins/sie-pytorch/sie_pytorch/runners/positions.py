"""From positions that count from 0 to the position ids an architecture wants, and how far those go.

It knows transformers' modules by the attributes they share, not by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

PositionRule = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Token ids and positions, both `[total_tokens]`, to position ids `[total_tokens]`."""


def position_rule(model: Any) -> PositionRule:
    """Find how `model` numbers positions: as given, or as RoBERTa does, whose table of them has a padding row."""
    table = _position_table(model)
    if table is None or table.padding_idx is None:
        return lambda ids, positions: positions
    padding_idx = table.padding_idx
    return lambda ids, positions: roberta_positions(ids, positions, padding_idx)


def roberta_positions(ids: torch.Tensor, positions: torch.Tensor, padding_idx: int) -> torch.Tensor:
    """Number the tokens of each sequence from `padding_idx + 1`.

    A token that is the padding token itself, which a text may spell out, has the number `padding_idx` and is not
    counted: so RoBERTa's embeddings derive it from the ids.
    """
    counted = ids != padding_idx
    count = counted.cumsum(0)
    firsts = torch.arange(len(ids), device=ids.device) - positions
    before = (count - counted.long())[firsts]
    return (count - before) * counted + padding_idx


def position_limit(model: Any) -> int | None:
    """Say how many tokens of a sequence the positions of `model` allow; None where its architecture sets no limit.

    Frequencies that change with the longest sequence of a batch (RoPE types `dynamic` and `longrope`) would make a
    text's states depend on its company: the limit then is the length up to which they stay as they are.
    """
    table = _position_table(model)
    if table is not None:
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return None
    for rope in _rope_parameters(model.config):
        if rope.get("rope_type") in {"dynamic", "longrope"}:
            limit = min(limit, int(rope.get("original_max_position_embeddings") or limit))
    return limit


def _position_table(model: Any) -> torch.nn.Embedding | None:
    """Return the learned positions, where the embeddings have any."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    return table if isinstance(table, torch.nn.Embedding) else None


def _rope_parameters(config: Any) -> Iterator[Mapping[str, Any]]:
    """Give the RoPE parameters, which some configs hold one set a kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    if "rope_type" in parameters:
        yield parameters
    else:
        yield from (nested for nested in parameters.values() if isinstance(nested, Mapping))
