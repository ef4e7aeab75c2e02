"""Which operations a model answers: those of its adapter, and `score` wherever it encodes. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from sie_core.contracts import Operation, ResolvedModel

OPERATIONS: tuple[Operation, ...] = get_args(Operation)


def served_operations(own: Collection[str]) -> tuple[Operation, ...]:
    """List what a model answers whose adapter does its `own` operations: vectors can always be compared."""
    return tuple(name for name in OPERATIONS if name in own or (name == "score" and "encode" in own))


def declared_operations(resolved: ResolvedModel) -> tuple[Operation, ...]:
    """List what a model answers by its config alone; nothing where the weights decide."""
    tasks: dict[str, Any] = dict(resolved.config.tasks)
    return served_operations([name for name, task in tasks.items() if task is not None])
