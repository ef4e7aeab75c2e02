"""The interface `sie.runner/3`: a transformer's forward pass over concatenated sequences, and its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from sie_text.architectures import Layers, find_architecture

from sie_core.contracts import ModelCard
from sie_pytorch.forward.checkpoint.half_precision import WideTable
from sie_pytorch.forward.checkpoint.mapping import UNMAPPED, MappedFiles


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The LoRA update of one linear layer's weight: `upper @ lower` (arXiv 2106.09685), scale included in `upper`."""

    lower: torch.Tensor
    """`[rank, in]`."""
    upper: torch.Tensor
    """`[out, rank]`."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LowRank:
    """One LoRA adapter: factors by the dotted name of the linear layer they are for, below the base model.

    All sequences of a batch use the same one. A runner may keep values derived from it while the object lives.
    """

    factors: Mapping[str, Factors]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The sequences of one forward pass, concatenated. No sequence is empty."""

    ids: torch.Tensor
    """int64 `[total_tokens]`, all sequences one after another."""
    positions: torch.Tensor
    """int64 `[total_tokens]`, from 0 in every sequence.

    If the architecture starts at another number (RoBERTa: `padding_idx + 1`), the runner adds it.
    """
    cu_seqlens: torch.Tensor
    """int32 or int64 `[sequences + 1]` on the CPU: the start of each sequence, and `total_tokens` last."""
    _: KW_ONLY
    types: torch.Tensor | None = None
    """int64 `[total_tokens]`, token types; None means the architecture's default."""
    key_lengths: torch.Tensor | None = None
    """int64 `[sequences]` on the CPU: how many leading tokens of each sequence are keys of attention, from none to all.

    The tokens after them attend to the keys, and no token attends to them (query expansion of ColBERT, arXiv
    2004.12832). A token without keys gets zeros from attention. None: all tokens are keys. Given only to runners that
    proved support for it at load; others may ignore it.
    """
    low_rank: LowRank | None = None
    """Added to the weights it names; None adds nothing.

    Given only to a `LoraRunner`; names and shapes match its `linear_shapes`.
    """
    bounds: torch.Tensor | None = None
    """int32 `[sequences + 1]`: `cu_seqlens` where `ids` are. None: a runner that needs them there copies them."""

    def spans(self) -> Iterator[slice]:
        """Return the tokens of each sequence."""
        return (slice(start, stop) for start, stop in pairwise(self.cu_seqlens.tolist()))


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """The argument of the class that a `RunnerSpec` names; the class returns a `Runner`."""

    model: Any
    """The transformers base model on its device, in evaluation mode, without pooler or head.

    A runner may drive it after calling `cast_model`. Or it may take the weights it needs, convert each to its own
    precision and release the model. On a CPU they are not in `dtype` before: most are views of the checkpoint's files,
    in the files' precision.
    """
    folder: Path
    """The folder the weights were read from."""
    card: ModelCard
    _: KW_ONLY
    device: torch.device
    dtype: torch.dtype
    attention_backend: str
    """Value of `SIE_ATTENTION_BACKEND`: `auto`, `sdpa`, `eager`, or another that a registered runner names."""
    threads: int
    """CPU threads the forward pass may use."""
    mapped: MappedFiles = UNMAPPED
    """The checkpoint's files in this process; a runner that took weights in another form may `release` them."""
    features: frozenset[str] = frozenset()
    """The features that the `RunnerSpec` states."""

    @property
    def layers(self) -> Layers | None:
        """The layers of `model` by the record of its type; None if none describes them."""
        stated = self.card.model_type or self.model.config.model_type
        record = find_architecture(stated, self.card.records)
        return None if record is None else record.layers

    def cast_model(self) -> Any:
        """Bring the weights of `model` into `dtype`, in place, and return it: for runners that drive it."""
        self.cast(self.model)
        return self.model

    def cast(self, module: torch.nn.Module) -> None:
        """Convert the weights of one module of `model` to `dtype`, in place.

        Weights are converted one by one, so that only one is in memory twice. Other buffers of the model, such as
        rotary frequencies, stay unchanged.
        """
        tables = [each for each in module.modules() if isinstance(each, WideTable)]
        for table in tables:
            table.dtype = self.dtype
        kept = {id(table.weight) for table in tables}
        for held in module.state_dict(keep_vars=True).values():
            if held.is_floating_point() and held.dtype is not self.dtype and id(held) not in kept:
                before = held.data
                held.data = before.to(self.dtype)
                self.mapped.release([before])


def weight_bytes(module: torch.nn.Module) -> int:
    """Add up the bytes of the parameters and buffers of `module`."""
    return sum(weight.nbytes for weight in (*module.parameters(), *module.buffers()))


class RunnerUnfitError(Exception):
    """A runner cannot serve this model; the message, which an operator reads, says why. The next runner is tried.

    A runner that was requested by name (`attention_backend`) and cannot run at all raises `ModelLoadError` instead.
    """


class Runner(Protocol):
    """A forward pass over sequences that are concatenated, not padded. Called from one thread at a time."""

    @property
    def memory_bytes(self) -> int:
        """Bytes on the device of the weights that it keeps."""
        ...

    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states of every token, final norm included.

        Returns:
            `[total_tokens, hidden]` on the runner's device in its precision, in the order of `batch.ids`. On an
            asynchronous device it may return before the device is done.
        """
        ...


@runtime_checkable
class LoraRunner(Runner, Protocol):
    """A runner that applies LoRA adapters: `low_rank` of a batch."""

    @property
    def linear_shapes(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers that low-rank factors may be for, with the sizes they have: out, in."""
        ...


@runtime_checkable
class LowRankPacker(Protocol):
    """A runner that keeps its own copy of low-rank factors."""

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Bring the factors into that form ahead of the first batch with them.

        Called on a loader thread, while `forward` may run on another.

        Returns:
            The bytes that this takes for as long as `low_rank` lives.
        """
        ...


@runtime_checkable
class NotedRunner(Protocol):
    """A runner with notes for operators."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Joins the model's notes, such as the instruction set."""
        ...
