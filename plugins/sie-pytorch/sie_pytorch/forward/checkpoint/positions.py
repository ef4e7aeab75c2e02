"""Converts positions counted from 0 to the position ids of an architecture, and finds their limit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

logger = logging.getLogger(__name__)

PositionRule = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Token ids and positions, both `[total_tokens]`, to position ids `[total_tokens]`."""


def position_rule(model: Any) -> PositionRule:
    """Find how `model` numbers positions: as given, or as RoBERTa does, whose table has a padding row."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, torch.nn.Embedding) or table.padding_idx is None:
        return lambda ids, positions: positions
    padding_idx = table.padding_idx
    return lambda ids, positions: roberta_positions(ids, positions, padding_idx)


def roberta_positions(ids: torch.Tensor, positions: torch.Tensor, padding_idx: int) -> torch.Tensor:
    """Number the tokens of each sequence from `padding_idx + 1`.

    A padding token that a text spells out has the number `padding_idx` and is not counted, because RoBERTa's embeddings
    derive it from the ids.
    """
    counted = ids != padding_idx
    count = counted.cumsum(0)
    firsts = torch.arange(len(ids), device=ids.device) - positions
    before = (count - counted.long())[firsts]
    return (count - before) * counted + padding_idx


def position_limit(model: Any) -> int | None:
    """Return how many tokens of a sequence the positions of `model` allow; None if its architecture sets no limit.

    With RoPE type `dynamic`, frequencies change with the longest sequence of a batch, so a text's states would depend
    on its company. The limit is then the length up to which they stay unchanged. Frequencies of `longrope` change once:
    see `longrope`.
    """
    learned = _learned_positions(model)
    if learned is not None:
        return learned
    limit = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1 or _is_relative(model.config):
        return None
    for rope in rope_parameters(model.config):
        if rope.get("rope_type") == "dynamic":
            limit = min(limit, int(rope.get("original_max_position_embeddings") or limit))
    return limit


class _AllFound(Exception):
    """Every table of positions was looked up."""


class _PositionsSought(TorchFunctionMode):
    """Watches the forward pass of one text for tables whose adjacent rows are looked up in order."""

    def __init__(self, tables: int) -> None:
        super().__init__()
        self.left: list[int] = []
        """For each table, its rows from the first token's row on."""
        self._tables = tables

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func`, unless the last table is found.

        Raises:
            _AllFound: Every table is found.
        """
        given = kwargs or {}
        if func is F.embedding:
            ids, table = (*args, *(given[name] for name in ("input", "weight") if name in given))[:2]
            rows = ids.flatten()[:3].tolist()  # some classes pad their input
            if rows == list(range(rows[0], rows[0] + 3)):
                self.left.append(len(table) - rows[0])
            if len(self.left) == self._tables:
                raise _AllFound
        return func(*args, **given)


def _learned_positions(model: Any) -> int | None:
    """Count the rows of the table of positions, from the one of a text's first token on; None without a table.

    A table may have rows before that one, and classes state so in many ways. So a short text is run to find them, and
    the shortest table counts if there are several (an encoder's and a decoder's).
    """
    named = (module for name, module in model.named_modules() if "position" in name)
    tables = sum(getattr(getattr(module, "weight", None), "ndim", 0) == 2 for module in named)
    if not tables:
        return None
    sought = _PositionsSought(tables)
    try:
        with sought:
            model(input_ids=_unlike_positions(model).to(next(model.parameters()).device))
    except _AllFound:
        pass
    except Exception:  # the proof finds faults of the model, and words them
        logger.debug("No short text ran through %s", type(model).__name__, exc_info=True)
    return min(sought.left, default=None)


def _unlike_positions(model: Any) -> torch.Tensor:
    """Return a few token ids, none of them padding, that cannot be a run of positions: `[1, tokens]`.

    A class may have its own padding row, whatever the config names: MPNet's is 1.
    """
    tables = (module for module in model.modules() if isinstance(module, torch.nn.Embedding))
    padding = {model.config.pad_token_id, *(table.padding_idx for table in tables)}
    ids = [number for number in range(min(getattr(model.config, "vocab_size", 6), 6)) if number not in padding]
    return torch.tensor([[ids[-1], ids[0]] * 4])  # fewer than four are too few for CANINE


def _is_relative(config: Any) -> bool:
    """Whether tokens know only their distances, as in DeBERTa: `max_position_embeddings` then bounds nothing."""
    relative = getattr(config, "relative_attention", False)
    return bool(relative) and not getattr(config, "position_biased_input", True)


def frequencies_follow_batch(config: Any) -> bool:
    """Whether rotary frequencies change with the longest sequence of a batch: transformers looks at every batch."""
    return any(rope.get("rope_type") in ("dynamic", "longrope") for rope in rope_parameters(config))


def rope_parameters(config: Any) -> Iterator[dict[str, Any]]:
    """Return the RoPE parameters; some configs hold one set per kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    if "rope_type" in parameters:
        yield parameters
    else:
        yield from (nested for nested in parameters.values() if isinstance(nested, dict))
