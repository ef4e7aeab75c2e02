"""Slices as a sidecar holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sie_cluster.messages.work import WorkHead
from sie_cluster.sidecar.held import Slice

from sie_core.contracts import Delivery, Pull


@dataclass
class Delivered:
    """A delivery that nobody answers."""

    attempt: int = 1


def slice_of(
    number: int,
    key: bytes = b"k",
    *,
    alone: bool = False,
    offer: Mapping[str, Any] | None = None,
    cost: int = 10,
    attempt: int = 1,
) -> Slice:
    """A slice of a request of its own."""
    head = WorkHead("r", 0, 1, 1, "encode", "m", key, 0, 1, cost, f"_INBOX.gateway.{number}", alone=alone, offer=offer)
    return Slice(number, head, cast("Delivery", Delivered(attempt)), cast("Pull", None))
