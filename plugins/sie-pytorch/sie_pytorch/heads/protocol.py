"""The interface of a head on a device; `sie_text.heads` states it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, runtime_checkable

import torch
from sie_text.heads import Head, Output
from sie_text.heads import HeadContext as HostContext

__all__ = ["Head", "HeadContext", "HeadMaker", "LateHead", "Output"]


@dataclass(frozen=True)
class HeadContext(HostContext):
    """The inputs for making a head, available once the runner of its states is."""

    _: KW_ONLY
    precision: str
    """Precision of the transformer: `float32`, `bfloat16` or `float16`. Small heads compute in float32."""
    device: torch.device
    """The device of the states, and of the head's weights."""


HeadMaker = Callable[[HeadContext], Head]
"""Makes a head: a class that takes a `HeadContext`, or a function.

It raises `ModelLoadError` if weights are missing or do not fit.
"""


@runtime_checkable
class LateHead(Protocol):
    """A head with results of a size that only the device knows, such as the entries that are not zero."""

    def narrow(self, computed: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Make the results for `finish` of those of `compute`, on a CPU thread that may wait for the device."""
        ...
