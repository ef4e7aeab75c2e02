"""Forward passes of transformer text models over packed sequences: `build_runner` picks the one that serves a model.

Nothing here knows a tokenizer, a pooling or a request.
"""

from sie_pytorch.runner_specs import INTERFACE
from sie_pytorch.runners.build import BuiltRunner, build_runner
from sie_pytorch.runners.mapping import UNMAPPED, MappedFiles, outside_heap
from sie_pytorch.runners.protocol import (
    Factors,
    LowRank,
    LowRankPacker,
    Runner,
    RunnerContext,
    RunnerInfo,
    RunnerUnfitError,
    weight_bytes,
)

__all__ = [
    "INTERFACE",
    "UNMAPPED",
    "BuiltRunner",
    "Factors",
    "LowRank",
    "LowRankPacker",
    "MappedFiles",
    "Runner",
    "RunnerContext",
    "RunnerInfo",
    "RunnerUnfitError",
    "build_runner",
    "outside_heap",
    "weight_bytes",
]
