"""Turns rows into the padded tensors that gliner's models take, and copies their results back to the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sie_core.contracts import device_errors
from sie_gliner.rows import Row
from sie_gliner.tokens import Ids


@dataclass(frozen=True, slots=True)
class Layout:
    """What the tensors of a model are made from."""

    pad: int
    """The id that fills rows of text."""
    label_pad: int
    """The id that fills rows of labels."""
    widths: int | None
    """How many words a span may have, for models that score spans; None for those that score words."""


@dataclass(frozen=True, slots=True)
class OnHost:
    """Results on their way to the host."""

    tensors: dict[str, torch.Tensor]
    done: torch.cuda.Event | None

    def land(self) -> None:
        """Wait until they are complete.

        Raises:
            DeviceLost: They never will be: what the device did asynchronously shows here.
        """
        if self.done is not None:
            with device_errors():
                self.done.synchronize()

    def wait(self) -> dict[str, NDArray[Any]]:
        """Return the results once they are complete.

        Raises:
            DeviceLost: They never will be: what the device did asynchronously shows here.
        """
        self.land()
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}


def tensors(rows: Sequence[Row], layout: Layout, device: torch.device) -> dict[str, Any]:
    """Make the arguments of a model's forward pass."""
    lengths = [row.words for row in rows]
    words = torch.tensor(lengths).unsqueeze(-1)
    found: dict[str, Any] = {
        "input_ids": _padded([row.ids for row in rows], layout.pad),
        "attention_mask": _padded([np.ones(len(row.ids), dtype=np.int64) for row in rows], 0),
        "words_mask": _padded([row.places for row in rows], 0),
        "text_lengths": words,
    }
    if layout.widths is not None:
        found |= _spans(max(lengths), layout.widths, words)
    if rows[0].prompt.rows:
        found |= _labels(rows, layout.label_pad)
    moved = {name: tensor.to(device, non_blocking=True) for name, tensor in found.items()}
    return moved | {"word_lengths": lengths}


def to_host(results: Iterable[tuple[str, torch.Tensor]]) -> OnHost:
    """Start the way of results to the host."""
    found, done = {}, None
    for name, tensor in results:
        if tensor.device.type == "cuda":
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            found[name] = host.copy_(tensor, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(torch.cuda.current_stream(tensor.device))
        else:
            found[name] = tensor.cpu()
    return OnHost(found, done)


def _padded(rows: Sequence[Ids], value: int) -> torch.Tensor:
    filled = np.full((len(rows), max(len(row) for row in rows)), value, dtype=np.int64)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return torch.from_numpy(filled)


def _spans(words: int, widths: int, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """List every span of up to `widths` words, and which of them a row has."""
    first = torch.arange(words).repeat_interleave(widths)
    last = first + torch.arange(widths).repeat(words)
    span_idx = torch.stack((first, last), dim=-1).expand(len(lengths), -1, -1)
    return {"span_idx": span_idx, "span_mask": last < lengths}


def _labels(rows: Sequence[Row], pad: int) -> dict[str, torch.Tensor]:
    """Give each distinct label one row, and say which of them each row of text is searched for."""
    places: dict[bytes, int] = {}
    distinct: list[Ids] = []
    asked = []
    for row in rows:
        mine = []
        for ids in row.prompt.rows:
            place = places.setdefault(ids.tobytes(), len(places))
            if place == len(distinct):
                distinct.append(ids)
            mine.append(place)
        asked.append(np.array(mine, dtype=np.int64))
    return {
        "labels_input_ids": _padded(distinct, pad),
        "labels_attention_mask": _padded([np.ones(len(ids), dtype=np.int64) for ids in distinct], 0),
        "labels_gather_indices": _padded(asked, 0),
        "prompts_embedding_mask": _padded([np.ones(len(each), dtype=np.int64) for each in asked], 0).bool(),
    }
