"""The options of the family, each with the stage that reads it, and the choices of one request."""

from __future__ import annotations

from dataclasses import dataclass

from sie_text.options import AUTO_MAP

from sie_core.contracts import InvalidInput, Option, PluginSetting, Task

THRESHOLD = 0.5
LONGEST_LABEL = 1_000
"""Bound on the characters of a relation label, as the API's on a label: tokenised ones are cached."""
LEAST_WITH_RELATIONS = 0.1
"""A model of relations looks at every pair of the entities above the threshold: their number is squared."""

PYTHON = PluginSetting(
    "SIE_GLINER_PYTHON",
    "",
    "`sie verify` compares GLiNER models with the gliner of this Python's environment. Unset, it is SIE's own Python.",
)

OPTIONS = (
    Option(
        "threshold",
        "finish",
        float,
        description="Entities of this score or less are left out; 0.5.",
        choices=(),
        minimum=0,
        maximum=1,
        operations=("extract",),
    ),
    Option(
        "flat_ner",
        "finish",
        bool,
        description="Whether entities may not overlap; false lets one lie inside another. True.",
        operations=("extract",),
    ),
    Option(
        "multi_label",
        "finish",
        bool,
        description="Whether one span may have several labels. False.",
        operations=("extract",),
    ),
    Option(
        "relation_labels",
        "prepare",
        list,
        description="What relations to look for between the entities; only for checkpoints that were trained on "
        "relations.",
        operations=("extract",),
    ),
    Option(
        "relation_threshold",
        "finish",
        float,
        description="Relations of this score or less are left out; the threshold of the entities.",
        choices=(),
        minimum=0,
        maximum=1,
        operations=("extract",),
    ),
    AUTO_MAP,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A request's choices for entities and relations."""

    threshold: float
    flat: bool
    multi_label: bool
    relation_labels: tuple[str, ...]
    relation_threshold: float

    @classmethod
    def of(cls, task: Task) -> Choice:
        """Read the options of a task.

        Raises:
            InvalidInput: There is an instruction; a relation label is no text, blank or too long; or the threshold is
                too low to look for relations.
        """
        if task.instruction:
            raise InvalidInput(
                "instruction is read by no model of this kind: the labels say what to look for; leave it out.",
                param="instruction",
            )
        options = task.options
        threshold = float(options.get("threshold", THRESHOLD))
        relation_labels = _texts(options.get("relation_labels") or [])
        if relation_labels and threshold < LEAST_WITH_RELATIONS:
            raise InvalidInput(
                f"options.threshold is {threshold:g}; with relation_labels at least {LEAST_WITH_RELATIONS} is allowed, "
                "for relations are looked for between all entities above it.",
                param="options.threshold",
            )
        return cls(
            threshold=threshold,
            flat=options.get("flat_ner", True),
            multi_label=options.get("multi_label", False),
            relation_labels=relation_labels,
            relation_threshold=float(options.get("relation_threshold", threshold)),
        )


def _texts(labels: list[object]) -> tuple[str, ...]:
    for place, label in enumerate(labels):
        if not isinstance(label, str) or not label.strip():
            raise InvalidInput(
                f"options.relation_labels[{place}] must be a text that is not blank; leave it out.",
                param="options.relation_labels",
            )
        if len(label) > LONGEST_LABEL:
            raise InvalidInput(
                f"options.relation_labels[{place}] has {len(label)} characters; {LONGEST_LABEL} are allowed.",
                param="options.relation_labels",
            )
    return tuple(dict.fromkeys(str(label) for label in labels))
