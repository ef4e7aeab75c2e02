"""Heads: from the flat states of a packed batch to outputs, one head a kind of output, for every architecture.

`compose` loads a checkpoint's tokenizer and transformer and puts heads on it. A head of your own inherits from `Head`
and is given to it beside, or in place of, those that the files ask for (`head_makers`). The names below are public, and
these alone.
"""

from sie_pytorch.heads.build import head_makers
from sie_pytorch.heads.composed.compose import compose
from sie_pytorch.heads.logits.classification import Activation, ClassificationHead
from sie_pytorch.heads.logits.classifier import Classifier, PooledClassifier
from sie_pytorch.heads.pooling import Spans, Upload, find_spans, last_others, pool
from sie_pytorch.heads.protocol import Head, HeadContext, HeadMaker, Output
from sie_pytorch.heads.vectors.dense import DenseChoice, DenseHead
from sie_pytorch.heads.vectors.steps import Steps
from sie_pytorch.heads.weights import read_named, read_pinned, read_rows, read_weights

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
    "read_weights",
]
