"""The options of the two text-encoder families, each with the stage that reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from sie_core.contracts import InvalidInput, Option, OutputType, Task
from sie_pytorch.recipes.settings import MODES, PoolingMode

POOLING_NAMES: Mapping[str, PoolingMode] = {
    **{mode: mode for mode in MODES},
    "last": "lasttoken",
    "last_token": "lasttoken",
    "weighted_mean": "weightedmean",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
}
"""Values of `pooling`: sentence-transformers' names, and other spellings of them."""

WORDS = (
    Option(
        "query_template",
        "prepare",
        str,
        "What a query becomes, in place of the weights' prompt: a text with `{text}` once and perhaps `{instruction}`.",
    ),
    Option("doc_template", "prepare", str, "The same for every text that is not a query."),
    Option("prompt_name", "prepare", str, "Which of the weights' prompts stands before each text, by its name."),
    Option("default_instruction", "prepare", str, "The instruction of queries, and of templates, where none is given."),
)
LENGTH = Option(
    "max_seq_length", "prepare", int, "Tokens a text is cut to, up to what the model's positions allow.", minimum=1
)
NORMALIZE = Option("normalize", "run", bool, "Whether vectors get unit length, whatever the weights' files say.")

SIMILARITY = Option(
    "similarity",
    "load",
    str,
    "How `score` compares vectors, in place of what the weights' files say.",
    choices=("cosine", "dot", "euclidean", "manhattan", "maxsim", "meanmaxsim"),
)

OPTIONS = (
    Option(
        "pooling",
        "run",
        str,
        "How token states become one vector, in place of what the weights' files say.",
        choices=tuple(POOLING_NAMES),
    ),
    NORMALIZE,
    Option(
        "max_active_dims",
        "finish",
        int,
        "How many of its largest weights a sparse vector keeps, in place of what the weights' files say.",
        minimum=1,
    ),
    *WORDS,
    LENGTH,
    Option("query_max_length", "prepare", int, "The same for queries alone.", minimum=1),
    SIMILARITY,
)
"""Of the family `pytorch`."""

READ_BY: Mapping[str, frozenset[OutputType]] = {
    "pooling": frozenset({"dense"}),
    "normalize": frozenset({"dense", "multivector"}),
    "max_active_dims": frozenset({"sparse"}),
}
"""Which outputs an option changes; a model that gives none of them refuses it. Others change the text of any."""

FALLBACK_OPTIONS = (NORMALIZE, *WORDS, replace(LENGTH, stage="run"), SIMILARITY)
"""Of the family `sentence-transformers`: a length goes with the call of its `encode`."""


def refuse_foreign(task: Task, given: Collection[OutputType]) -> None:
    """Refuse options that change none of the outputs a model has.

    Raises:
        InvalidInput: Names the option.
    """
    for option, outputs in READ_BY.items():
        if task.options.get(option) is not None and outputs.isdisjoint(given):
            raise InvalidInput(
                f"options.{option} is of {' and '.join(sorted(outputs))} vectors, and the model gives "
                f"{', '.join(given)}; leave the option out.",
                param=f"options.{option}",
            )
