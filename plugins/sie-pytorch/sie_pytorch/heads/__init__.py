"""Heads: from the flat states of a packed batch to outputs, one head a kind of output, for every architecture.

They are those of `sie_text.heads`, computed on a device. `compose` loads a checkpoint's tokenizer and transformer and
puts heads on it. Pass a head of your own, a subclass of `Head`, in addition to or instead of those that the files ask
for (`head_makers`). Only the names below are public.
"""

from sie_text.heads import (
    Activation,
    ClassificationHead,
    Classifier,
    DenseChoice,
    Spans,
    Upload,
    find_spans,
    last_others,
)

from sie_pytorch.heads.build import head_makers
from sie_pytorch.heads.classifier import PooledClassifier
from sie_pytorch.heads.composed.compose import compose
from sie_pytorch.heads.pooling import pool
from sie_pytorch.heads.protocol import Head, HeadContext, HeadMaker, Output
from sie_pytorch.heads.vectors.dense import DenseHead
from sie_pytorch.heads.vectors.steps import Steps
from sie_pytorch.heads.weights import read_named, read_pinned, read_rows

__all__ = [
    "Activation",
    "ClassificationHead",
    "Classifier",
    "DenseChoice",
    "DenseHead",
    "Head",
    "HeadContext",
    "HeadMaker",
    "Output",
    "PooledClassifier",
    "Spans",
    "Steps",
    "Upload",
    "compose",
    "find_spans",
    "head_makers",
    "last_others",
    "pool",
    "read_named",
    "read_pinned",
    "read_rows",
]
