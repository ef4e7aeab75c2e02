"""Forward passes of transformer text models over packed sequences. Only the names below are public.

`build_runner` builds the runner of a model; a runner of your own follows `Runner`, or `LoraRunner`, and is registered
for `INTERFACE`. Names are imported on first use: a plugin module that asks for `INTERFACE` loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sie_pytorch.forward.specs import INTERFACE

if TYPE_CHECKING:
    from sie_pytorch.forward.checkpoint.mapping import UNMAPPED, MappedFiles
    from sie_pytorch.forward.checkpoint.pickles import with_safetensors
    from sie_pytorch.forward.checkpoint.positions import frequencies_follow_batch, position_limit
    from sie_pytorch.forward.checkpoint.precision import LEAST_COSINE, TOLERANCE, least_cosine
    from sie_pytorch.forward.checkpoint.reading import EncoderPart, account_for, load_model, register_class
    from sie_pytorch.forward.checkpoint.unheeded import refuse_unheeded
    from sie_pytorch.forward.choice.build import build_runner
    from sie_pytorch.forward.choice.built import BuiltRunner, RunnerInfo
    from sie_pytorch.forward.deberta.positions import RelativePositions
    from sie_pytorch.forward.judging.logits import Judge, logits_moved
    from sie_pytorch.forward.judging.refusals import keep_refusal, recall_refusal
    from sie_pytorch.forward.layout import AttentionLayout, PackedLayout, Run, seen_tokens
    from sie_pytorch.forward.loop.entry import Angles, EmbeddingTables, EncoderEntry
    from sie_pytorch.forward.loop.layer import Attention, LoopLayer, LoopParts, LoraDelta, Norm, Product, UpProjection
    from sie_pytorch.forward.loop.linear import Rows
    from sie_pytorch.forward.loop.prepacked import prepack
    from sie_pytorch.forward.loop.runner import LayerLoop
    from sie_pytorch.forward.loop.stack import LayerNorms, LayerStack, NormNumbers, plain_linear
    from sie_pytorch.forward.packed import PackedRunner
    from sie_pytorch.forward.padded.batches import PaddedBatch, PaddedBatches, group_by_length
    from sie_pytorch.forward.protocol import (
        Batch,
        Factors,
        LoraRunner,
        LowRank,
        LowRankPacker,
        NotedRunner,
        Runner,
        RunnerContext,
        RunnerUnfitError,
        weight_bytes,
    )
    from sie_pytorch.forward.recorded import RECORDING, register_recordings
    from sie_pytorch.forward.sharing import shares
    from sie_pytorch.forward.transfers import HostCopy, Transfers

__all__ = [
    "INTERFACE",
    "LEAST_COSINE",
    "RECORDING",
    "TOLERANCE",
    "UNMAPPED",
    "Angles",
    "Attention",
    "AttentionLayout",
    "Batch",
    "BuiltRunner",
    "EmbeddingTables",
    "EncoderEntry",
    "EncoderPart",
    "Factors",
    "HostCopy",
    "Judge",
    "LayerLoop",
    "LayerNorms",
    "LayerStack",
    "LoopLayer",
    "LoopParts",
    "LoraDelta",
    "LoraRunner",
    "LowRank",
    "LowRankPacker",
    "MappedFiles",
    "Norm",
    "NormNumbers",
    "NotedRunner",
    "PackedLayout",
    "PackedRunner",
    "PaddedBatch",
    "PaddedBatches",
    "Product",
    "RelativePositions",
    "Rows",
    "Run",
    "Runner",
    "RunnerContext",
    "RunnerInfo",
    "RunnerUnfitError",
    "Transfers",
    "UpProjection",
    "account_for",
    "build_runner",
    "frequencies_follow_batch",
    "group_by_length",
    "keep_refusal",
    "least_cosine",
    "load_model",
    "logits_moved",
    "plain_linear",
    "position_limit",
    "prepack",
    "recall_refusal",
    "refuse_unheeded",
    "register_class",
    "register_recordings",
    "seen_tokens",
    "shares",
    "weight_bytes",
    "with_safetensors",
]

_MODULES = {
    "choice.build": ("build_runner",),
    "choice.built": (
        "BuiltRunner",
        "RunnerInfo",
    ),
    "judging.logits": (
        "Judge",
        "logits_moved",
    ),
    "judging.refusals": (
        "keep_refusal",
        "recall_refusal",
    ),
    "protocol": (
        "Batch",
        "Factors",
        "LoraRunner",
        "LowRank",
        "LowRankPacker",
        "NotedRunner",
        "Runner",
        "RunnerContext",
        "RunnerUnfitError",
        "weight_bytes",
    ),
    "packed": ("PackedRunner",),
    "padded.batches": (
        "PaddedBatch",
        "PaddedBatches",
        "group_by_length",
    ),
    "layout": (
        "AttentionLayout",
        "PackedLayout",
        "Run",
        "seen_tokens",
    ),
    "deberta.positions": ("RelativePositions",),
    "loop.layer": (
        "LoraDelta",
        "Attention",
        "LoopLayer",
        "LoopParts",
        "Norm",
        "Product",
        "UpProjection",
    ),
    "loop.linear": ("Rows",),
    "loop.prepacked": ("prepack",),
    "loop.runner": ("LayerLoop",),
    "recorded": ("RECORDING", "register_recordings"),
    "sharing": ("shares",),
    "transfers": (
        "HostCopy",
        "Transfers",
    ),
    "checkpoint.unheeded": ("refuse_unheeded",),
    "checkpoint.pickles": ("with_safetensors",),
    "checkpoint.positions": ("frequencies_follow_batch", "position_limit"),
    "checkpoint.reading": (
        "EncoderPart",
        "account_for",
        "load_model",
        "register_class",
    ),
    "checkpoint.mapping": (
        "UNMAPPED",
        "MappedFiles",
    ),
    "checkpoint.precision": (
        "LEAST_COSINE",
        "TOLERANCE",
        "least_cosine",
    ),
    "loop.entry": (
        "Angles",
        "EmbeddingTables",
        "EncoderEntry",
    ),
    "loop.stack": (
        "LayerNorms",
        "LayerStack",
        "NormNumbers",
        "plain_linear",
    ),
}
"""The module that defines each name."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
