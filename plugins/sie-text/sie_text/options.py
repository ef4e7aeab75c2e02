"""Options that text models share, each with the stage that reads it; a family registers those it reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import get_args

from sie_core.contracts import InvalidInput, Option, OutputType, Task
from sie_text.recipe import MODES, PairTruncation, PoolingMode

__all__ = [
    "ACTIVATION_NAMES",
    "AUTO_MAP",
    "CLASSIFIER_OPTIONS",
    "ENCODER_OPTIONS",
    "ENTITY_OPTIONS",
    "HYPOTHESIS",
    "LENGTH",
    "NORMALIZE",
    "PAIR_OPTIONS",
    "POOLING_NAMES",
    "PROMPT_OPTIONS",
    "SIMILARITY",
    "STATIC_OPTIONS",
    "STRATEGIES",
    "refuse_foreign",
]

POOLING_NAMES: Mapping[str, PoolingMode] = {
    **{mode: mode for mode in MODES},
    "last": "lasttoken",
    "last_token": "lasttoken",
    "weighted_mean": "weightedmean",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
}
"""Values of `pooling`: sentence-transformers' names, and other spellings."""

PROMPT_OPTIONS = (
    Option(
        "query_template",
        "prepare",
        str,
        description="What a query becomes, in place of the weights' prompt: a text with `{text}` once and perhaps "
        "`{instruction}`.",
    ),
    Option("doc_template", "prepare", str, description="The same for every text that is not a query."),
    Option(
        "prompt_name", "prepare", str, description="Which of the weights' prompts stands before each text, by its name."
    ),
    Option(
        "default_instruction",
        "prepare",
        str,
        description="The instruction of queries, and of templates, where none is given.",
    ),
)
LENGTH = Option(
    "max_seq_length",
    "prepare",
    int,
    description="Tokens a text is cut to, up to what the model's positions allow.",
    minimum=1,
)
NORMALIZE = Option(
    "normalize", "run", bool, description="Whether vectors get unit length, whatever the weights' files say."
)

AUTO_MAP = Option(
    "auto_map",
    "load",
    str,
    description="Serves transformers' own class where `config.json` names one that comes with the weights "
    "(`auto_map`).",
    choices=("ignore",),
)

SIMILARITY = Option(
    "similarity",
    "load",
    str,
    description="How `score` compares vectors, in place of what the weights' files say.",
    choices=("cosine", "dot", "euclidean", "manhattan", "maxsim", "meanmaxsim"),
)

ENCODER_OPTIONS = (
    Option(
        "pooling",
        "run",
        str,
        description="How token states become one vector, in place of what the weights' files say.",
        choices=tuple(POOLING_NAMES),
    ),
    NORMALIZE,
    Option(
        "max_active_dims",
        "finish",
        int,
        description="How many of its largest weights a sparse vector keeps, in place of what the weights' files say.",
        minimum=1,
    ),
    *PROMPT_OPTIONS,
    LENGTH,
    Option("query_max_length", "prepare", int, description="The same for queries alone.", minimum=1),
    SIMILARITY,
    AUTO_MAP,
)
"""Options of encoders with any of the heads of a `Recipe`."""

READ_BY: Mapping[str, frozenset[OutputType]] = {
    "pooling": frozenset({"dense"}),
    "normalize": frozenset({"dense", "multivector"}),
    "max_active_dims": frozenset({"sparse"}),
}
"""Outputs that an option changes; a model without any of them refuses it. Other options change the text."""


STATIC_OPTIONS = (
    replace(NORMALIZE, stage="prepare"),
    next(option for option in ENCODER_OPTIONS if option.name == "max_active_dims"),
    *PROMPT_OPTIONS,
    LENGTH,
    SIMILARITY,
)
"""Options of vectors and weights that are looked up by token: nothing in a request changes their run."""


ACTIVATION_NAMES = ("identity", "sigmoid", "softmax")
HYPOTHESIS = "This example is {}."
"""Default hypothesis of a label, as in transformers' pipeline."""

PAIR_OPTIONS = (
    Option(
        "activation",
        "finish",
        str,
        description="What becomes of the logits of a pair, in place of what the weights' files say.",
        choices=ACTIVATION_NAMES,
        operations=("score",),
    ),
    Option(
        "temperature",
        "finish",
        float,
        description="What the logits of a pair are divided by before the activation.",
        minimum=0.001,
        operations=("score",),
    ),
    Option(
        "score_label",
        "finish",
        str,
        description="Which of several labels is the score, by its name.",
        operations=("score",),
    ),
    Option(
        "template",
        "prepare",
        str,
        description="One text that a query and a document become, in place of a pair: with `{query}`, `{document}` "
        "and perhaps "
        "`{instruction}`, special tokens by their names; `{+}` between parts that are tokenised one by one.",
        operations=("score",),
    ),
    Option(
        "default_instruction",
        "prepare",
        str,
        description="The instruction where a request gives none.",
        operations=("score",),
    ),
    Option(
        "pair_truncation",
        "prepare",
        str,
        description="Which text of a long pair is cut, in place of what the weights' files say.",
        choices=get_args(PairTruncation),
        operations=("score",),
    ),
    Option(
        "hypothesis_template",
        "prepare",
        str,
        description=f"The sentence a label becomes, with `{{}}` for the label; else `{HYPOTHESIS}`",
        operations=("extract",),
    ),
    Option(
        "multi_label",
        "finish",
        bool,
        description="Whether each label is judged on its own; else the scores of all add up to 1.",
        operations=("extract",),
    ),
    Option("true_token", "load", str, description="Language models: the token whose logit is the score, for a match."),
    Option(
        "false_token", "load", str, description="Language models: the token whose logit is taken off, for no match."
    ),
    LENGTH,
    AUTO_MAP,
)
"""Options of models that read pairs of texts."""


CLASSIFIER_OPTIONS = (
    Option(
        "activation",
        "run",
        str,
        description="What becomes of the logits of a text, in place of what the weights' files say.",
        choices=ACTIVATION_NAMES,
    ),
    LENGTH,
    AUTO_MAP,
)
"""Options of classifiers of single texts."""


STRATEGIES = ("simple", "first", "average", "max", "none")
"""transformers' names of how the labels of tokens become entities; the first is the default.

`simple`: neighbouring tokens of one kind. `first`, `average`, `max`: first each word gets one label, that of its first
token, of its tokens' mean, or of its surest token. `none`: each token by itself.
"""

ENTITY_OPTIONS = (
    Option(
        "aggregation_strategy",
        "finish",
        str,
        description="How the labels of tokens become entities, as in transformers' pipeline; `simple`.",
        choices=STRATEGIES,
    ),
    Option(
        "threshold",
        "finish",
        float,
        description="Entities of this score or less are left out; 0.",
        minimum=0,
        maximum=1,
    ),
    replace(LENGTH, description="Tokens of a window, of which a longer text is read in several that overlap."),
    AUTO_MAP,
)
"""Options of models that label the tokens of a text."""


def refuse_foreign(task: Task, given: Collection[str]) -> None:
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
