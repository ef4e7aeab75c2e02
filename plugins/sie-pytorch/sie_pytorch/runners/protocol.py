"""What a runner is: a transformer's forward pass over concatenated sequences, and what it is made from.

It knows no tokenizer, no pooling and no request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from sie_core.contracts import ModelCard
from sie_pytorch.runners.halves import WideTable
from sie_pytorch.runners.mapping import UNMAPPED, MappedFiles


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """What LoRA adds to the weight of a linear layer: `upper @ lower` (arXiv 2106.09685), scale included in `upper`."""

    lower: torch.Tensor
    """`[rank, in]`."""
    upper: torch.Tensor
    """`[out, rank]`."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LowRank:
    """One LoRA adapter: factors by the dotted name of the linear layer they are for, below the base model.

    All sequences of a batch use the same one. A runner may keep what it derives from it while the object lives.
    """

    factors: Mapping[str, Factors]


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What serves a model, and why."""

    name: str
    """The name of its `RunnerSpec`, or `padded`; `padded (equal lengths)` where padding changes the states."""
    reason: str
    """Why it serves: what it proved, or why the faster ones were passed over."""
    precision: str
    """`float32`, `bfloat16` or `float16`, as computed in."""
    model_type: str
    hidden_size: int
    attention_layers: int
    max_sequence_length: int | None
    """Tokens of a sequence the positions allow; None where the architecture sets no limit."""
    memory_bytes: int
    """What the weights take on the device."""
    embeds_types: bool = False
    """Whether the token type 0 adds to a token's embedding what no type does not: a type then goes with every token of
    a tokenizer that gives types."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """For `ModelFacts.notes`: the runner, and every choice an operator should know."""


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What the class that a `RunnerSpec` names is called with; it returns a `Runner`."""

    model: Any
    """The transformers base model on its device, in evaluation mode, without pooler or head.

    A runner may drive it once it has called `cast_model`, or take the weights it needs, bring each into its own
    precision and let go of the model. On a CPU they are not in `dtype` before: most are views of the checkpoint's
    files, in the files' precision.
    """
    folder: Path
    """The folder the weights were read from."""
    card: ModelCard
    device: torch.device
    dtype: torch.dtype
    attention_backend: str
    """What `SIE_ATTENTION_BACKEND` says: `auto`, `sdpa`, `eager`, or another that a registered runner names."""
    threads: int
    """CPU threads the forward pass may use."""
    mapped: MappedFiles = UNMAPPED
    """The checkpoint's files in this process; a runner that took weights in another form may `release` them."""

    def cast_model(self) -> Any:
        """Bring the weights of `model` into `dtype`, in place, and return it: for runners that drive it."""
        self.cast(self.model)
        return self.model

    def cast(self, module: torch.nn.Module) -> None:
        """Bring the weights of one module of `model` into `dtype`, in place.

        One after another, so that none but the last is there twice. What a model keeps beside its weights, such as
        rotary frequencies, stays as it is.
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
    """Add up what the parameters and buffers of `module` take."""
    return sum(weight.nbytes for weight in (*module.parameters(), *module.buffers()))


class RunnerUnfitError(Exception):
    """A runner cannot serve this model; the message, which an operator reads, says why. The next runner is tried.

    A runner that was asked for by name (`attention_backend`) and cannot run at all raises `ModelLoadError` instead.
    """


class Runner(Protocol):
    """A forward pass over sequences that are concatenated, not padded. Called from one thread at a time."""

    @property
    def memory_bytes(self) -> int:
        """What the weights it keeps take on the device."""
        ...

    @property
    def linear_shapes(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers that low-rank factors may be for, with the sizes they have: out, in."""
        ...

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None = None,
        key_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the last hidden states of every token, final norm included.

        Args:
            ids: int64 `[total_tokens]`, all sequences one after another.
            positions: int64 `[total_tokens]`, from 0 in every sequence. Where the architecture counts from another
                number (RoBERTa: `padding_idx + 1`) the runner adds it.
            segment_ids: int64 `[total_tokens]`, token types; None means what the architecture takes by default.
            cu_seqlens: int32 or int64 `[sequences + 1]` on the CPU: where each sequence starts, and `total_tokens`
                last. No sequence is empty.
            low_rank: What every weight it names has added to it for this batch, None for nothing. Its names and shapes
                are those of `linear_shapes`.
            key_lengths: int64 `[sequences]` on the CPU: how many leading tokens of each sequence its tokens attend to,
                from none to all. The others attend to those and nothing attends to them, themselves included (the
                filling of ColBERT's queries, arXiv 2004.12832). A token that sees nothing gets zeros from attention.
                None means all; it is given only to runners of models with such a filling, which proved that they heed
                it.

        Returns:
            `[total_tokens, hidden]` on the runner's device in its precision, in the order of `ids`. On an asynchronous
            device it may return before the device is done.
        """
        ...


@runtime_checkable
class LowRankPacker(Protocol):
    """A runner that keeps low-rank factors in a form of its own."""

    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Bring the factors into that form ahead of the first batch with them.

        Called on a loader thread, while `forward` may run on another.

        Returns:
            The bytes that this takes for as long as `low_rank` lives.
        """
        ...
