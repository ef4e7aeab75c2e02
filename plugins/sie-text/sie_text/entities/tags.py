"""What the labels of a token classifier say: which kind of entity a token is of, and whether one begins or ends there.

Three schemes are read off the names: BIO (`B-PER`, `I-PER`, `O`), BIOES (also spelt BILOU), and plain labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

OUTSIDE = "O"
"""The label of a token of no entity."""
NO_KIND = -1
"""The number of its kind."""


@dataclass(frozen=True, slots=True, eq=False)
class TagSet:
    """The labels of a model."""

    labels: tuple[str, ...]
    """As its files write them, in the order of the logits."""
    kinds: tuple[str, ...]
    """The kinds of entities, without a scheme's prefixes."""
    kind_of: NDArray[np.int32]
    """`[labels]`: the number of each label's kind; `NO_KIND` outside of entities."""
    _: KW_ONLY
    begins: NDArray[np.bool_]
    """`[labels]`: whether an entity begins there, although the token before is of the same kind."""
    ends: NDArray[np.bool_]
    """`[labels]`: whether an entity ends there, although the token after is of the same kind."""

    @classmethod
    def of(cls, labels: Sequence[str]) -> TagSet:
        """Read the scheme off the names of the labels."""
        parts = _parts(labels)
        kinds = tuple(dict.fromkeys(kind for _, kind in parts if kind != OUTSIDE))
        return cls(
            tuple(labels),
            kinds,
            np.array([NO_KIND if kind == OUTSIDE else kinds.index(kind) for _, kind in parts], dtype=np.int32),
            begins=np.array([role in "BSU" for role, _ in parts]),
            ends=np.array([role in "ELSU" for role, _ in parts]),
        )


def _parts(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Split each label into the role of a token in its entity, `I` if it names none, and the kind.

    `E-MAIL` is a plain label unless some label is `B-MAIL` or `I-MAIL`: an end needs something before it. An entity of
    one token does not, so `S-MAIL` has a role if any label is an end.
    """
    split = [(label[0], label[2:]) if label[1:2] == "-" and len(label) > 2 else ("", label) for label in labels]
    open_kinds = {kind for role, kind in split if role in ("B", "I")}
    ends = {"E", "L"} & {role for role, kind in split if kind in open_kinds}
    found = []
    for label, (role, kind) in zip(labels, split, strict=True):
        known = (
            role in ("B", "I")
            or (role in ("E", "L") and kind in open_kinds)
            or (role in ("S", "U") and (kind in open_kinds or bool(ends)))
        )
        found.append((role, kind) if known else ("I", label))
    return found
