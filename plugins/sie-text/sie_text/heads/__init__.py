"""Heads: from the flat states of a packed batch to outputs, one head a kind of output, in NumPy.

`build_heads` reads those that a checkpoint's files ask for; `Head.apply` turns states `[total_tokens, hidden]` into
outputs. `TextParts` and `HeadAdapter` are the rest of an encoder but its forward pass. `sie_pytorch.heads` inherits
from all of it and computes on a device. Only the names below are public.
"""

from sie_text.heads.build import build_classification_head, build_entity_head, build_heads, build_pair_head
from sie_text.heads.composed.adapter import EXTRACTED, Choice, HeadAdapter, TextEncoder, joined
from sie_text.heads.composed.entities import EntityParts, EntityUnits
from sie_text.heads.composed.pairs import PairParts, PairUnits
from sie_text.heads.composed.parts import TextParts
from sie_text.heads.logits.classification import Activation, ClassificationHead, default_activation
from sie_text.heads.logits.classifier import Classifier, Odds, PooledClassifier
from sie_text.heads.logits.entities import EntityHead, TokenLogits
from sie_text.heads.logits.pairs import LabelChoice, PairHead
from sie_text.heads.pooling import pool
from sie_text.heads.protocol import Head, HeadContext, Output
from sie_text.heads.spans import Index, Spans, Upload, find_spans, last_others
from sie_text.heads.sparse.splade import SpladeHead
from sie_text.heads.sparse.token_weights import TokenWeightHead
from sie_text.heads.vectors.dense import DenseChoice, DenseHead
from sie_text.heads.vectors.layers import LayerNorm, Linear, Step, UnitLength
from sie_text.heads.vectors.multivector import Kept, MultivectorHead, skipped_ids
from sie_text.heads.vectors.steps import Steps, load_projection, load_step
from sie_text.heads.weights import read_named, read_rows, read_weights

__all__ = [
    "EXTRACTED",
    "Activation",
    "Choice",
    "ClassificationHead",
    "Classifier",
    "DenseChoice",
    "DenseHead",
    "EntityHead",
    "EntityParts",
    "EntityUnits",
    "Head",
    "HeadAdapter",
    "HeadContext",
    "Index",
    "Kept",
    "LabelChoice",
    "LayerNorm",
    "Linear",
    "MultivectorHead",
    "Odds",
    "Output",
    "PairHead",
    "PairParts",
    "PairUnits",
    "PooledClassifier",
    "Spans",
    "SpladeHead",
    "Step",
    "Steps",
    "TextEncoder",
    "TextParts",
    "TokenLogits",
    "TokenWeightHead",
    "UnitLength",
    "Upload",
    "build_classification_head",
    "build_entity_head",
    "build_heads",
    "build_pair_head",
    "default_activation",
    "find_spans",
    "joined",
    "last_others",
    "load_projection",
    "load_step",
    "pool",
    "read_named",
    "read_rows",
    "read_weights",
    "skipped_ids",
]
