"""The last steps of an output: derived outputs, Matryoshka sizes, dtypes, encoding."""

from sie_core.postprocess.checks import require_finite, require_form
from sie_core.postprocess.dtypes import OUTPUT_DTYPES
from sie_core.postprocess.encoding import encode_item
from sie_core.postprocess.extraction import encode_extraction, encode_score
from sie_core.postprocess.matryoshka import shorten
from sie_core.postprocess.similarity import similarity

__all__ = [
    "OUTPUT_DTYPES",
    "encode_extraction",
    "encode_item",
    "encode_score",
    "require_finite",
    "require_form",
    "shorten",
    "similarity",
]
