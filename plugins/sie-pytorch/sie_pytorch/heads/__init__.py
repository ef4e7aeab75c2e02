"""Heads: from the flat states of a packed batch to vectors, one head a kind of output, for every architecture.

They know no tokenizer, no runner and no request.
"""

from sie_pytorch.heads.build import build_heads
from sie_pytorch.heads.dense import DenseChoice, DenseHead
from sie_pytorch.heads.protocol import Head, PackedRows

__all__ = ["DenseChoice", "DenseHead", "Head", "PackedRows", "build_heads"]
