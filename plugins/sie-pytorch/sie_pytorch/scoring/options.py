"""The options of the family of pairwise models, each with the stage that reads it."""

from __future__ import annotations

from typing import get_args

from sie_core.contracts import Option
from sie_pytorch.options import LENGTH
from sie_pytorch.scoring.layout import PairTruncation

ACTIVATION_NAMES = ("identity", "sigmoid", "softmax")
HYPOTHESIS = "This example is {}."
"""The hypothesis of a label where nobody gives another; that of transformers' pipeline."""

OPTIONS = (
    Option(
        "activation",
        "finish",
        str,
        "What becomes of the logits of a pair, in place of what the weights' files say.",
        choices=ACTIVATION_NAMES,
        operations=("score",),
    ),
    Option("score_label", "finish", str, "Which of several labels is the score, by its name.", operations=("score",)),
    Option(
        "template",
        "prepare",
        str,
        "One text that a query and a document become, in place of a pair: with `{query}`, `{document}` and perhaps "
        "`{instruction}`, special tokens by their names.",
        operations=("score",),
    ),
    Option(
        "default_instruction",
        "prepare",
        str,
        "The instruction where a request gives none.",
        operations=("score",),
    ),
    Option(
        "pair_truncation",
        "prepare",
        str,
        "Which text of a long pair is cut, in place of what the weights' files say.",
        choices=get_args(PairTruncation),
        operations=("score",),
    ),
    Option(
        "hypothesis_template",
        "prepare",
        str,
        f"The sentence a label becomes, with `{{}}` for the label; else `{HYPOTHESIS}`",
        operations=("extract",),
    ),
    Option(
        "multi_label",
        "finish",
        bool,
        "Whether each label is judged on its own; else the scores of all add up to 1.",
        operations=("extract",),
    ),
    Option("true_token", "load", str, "Language models: the token whose logit is the score, for a match."),
    Option("false_token", "load", str, "Language models: the token whose logit is taken off, for no match."),
    LENGTH,
)
"""Of the family `pytorch-pairs`."""
