"""What one request asks of a token classifier. Nothing of it changes the forward pass: all requests share batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sie_core.contracts import InvalidInput, Task
from sie_text.entities.tags import TagSet
from sie_text.options import STRATEGIES

WORDWISE = frozenset({"first", "average", "max"})
"""Strategies that give each word one label before words become entities."""


@dataclass(frozen=True, slots=True, eq=False)
class EntityChoice:
    """A request's choices."""

    strategy: str
    threshold: float
    """Entities of this score or less are left out."""
    wanted: NDArray[np.bool_]
    """`[kinds + 1]`: whether entities of a kind are answered; the last entry is that outside of entities, False."""

    @classmethod
    def of(cls, task: Task, tags: TagSet, model: str) -> EntityChoice:
        """Read the labels and the options of `task`.

        Raises:
            InvalidInput: A label is none of the model's, or there is an instruction.
        """
        if task.instruction:
            raise InvalidInput(
                f"instruction is not read by {model}, which looks for what its weights say; leave it out.",
                param="instruction",
            )
        unknown = next((label for label in task.labels if label not in tags.kinds), None)
        if unknown is not None:
            raise InvalidInput(
                f"labels names {unknown!r}; {model} finds {', '.join(tags.kinds)}: name some of these, or no label.",
                param="labels",
            )
        wanted = np.array([*(not task.labels or kind in task.labels for kind in tags.kinds), False])
        options = task.options
        return cls(options.get("aggregation_strategy", STRATEGIES[0]), float(options.get("threshold", 0.0)), wanted)
