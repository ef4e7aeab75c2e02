"""Half precision judged by the logits of a model's head, over a few texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import torch
from sie_text.loading import PROBE_TEXTS
from sie_text.sequences import PackedBatch, TokenSequence

from sie_core.contracts import InvalidInput, Item, Task
from sie_pytorch.forward.judging.logits import logits_moved
from sie_pytorch.forward.transfers import Transfers
from sie_pytorch.heads.protocol import Head

MOST_TOKENS = 128
"""Tokens from which on no further probe is taken: the model's own pass over them is part of the load."""
LEAST = 4
"""Probes used whatever their length: a single one's logit may hardly move by chance."""


class HeadJudge:
    """Judges by a head whose first tensor is logits; see `sie_pytorch.forward.Judge`."""

    def __init__(
        self,
        sequences: Callable[[Sequence[Item], int | None], Iterable[TokenSequence]],
        make: Callable[[int], Head],
        task: Task,
        device: torch.device,
        *,
        gives_types: bool = False,
    ) -> None:
        """Keep the arguments and make nothing yet: a model served in float32 is not judged.

        Args:
            sequences: Makes the probes of items, given the tokens of a sequence that the positions allow.
            make: Makes the head, given the hidden size.
            task: The head's task.
            device: The device of the states.
            gives_types: Whether token types are passed with the tokens.
        """
        self._sequences = sequences
        self._make = make
        self._task = task
        self._device = device
        self._gives_types = gives_types
        self._batch: PackedBatch | None = None
        self._head: Head | None = None

    def probes(self, limit: int | None) -> tuple[PackedBatch, bool] | None:
        """Make the probes; see `Judge.probes`."""
        taken: list[TokenSequence] = []
        with suppress(InvalidInput):  # of the profile's options: the first run says which
            for sequence in self._sequences([Item(text=text) for text in PROBE_TEXTS[1:]], limit):
                taken.append(sequence)
                if len(taken) >= LEAST and sum(len(each.ids) for each in taken) >= MOST_TOKENS:
                    break
        if not taken:
            return None
        self._batch = PackedBatch(taken)
        return self._batch, self._gives_types

    def refusal(self, states: torch.Tensor, expected: torch.Tensor) -> str | None:
        """Compare the logits of both; see `Judge.refusal`."""
        assert self._batch is not None
        head = self._head = self._head or self._make(states.shape[1])
        layout, choice = head.lay_out(self._batch, Transfers(self._device).upload), head.choose(self._task)
        logits, of_float32 = (head.compute(each, layout, choice)[0] for each in (states, expected))
        return logits_moved(logits, of_float32)
