"""Pairs of texts as a model reads them together: a query and a document, or a text and the hypothesis of a label."""

from sie_text.pairs.frames import PairFrame
from sie_text.pairs.preparation import PairPreparation
from sie_text.pairs.templates import (
    QWEN3_INSTRUCTION,
    QWEN3_RERANKER,
    PairTemplate,
    chat_template,
    format_template,
)

__all__ = [
    "QWEN3_INSTRUCTION",
    "QWEN3_RERANKER",
    "PairFrame",
    "PairPreparation",
    "PairTemplate",
    "chat_template",
    "format_template",
]
