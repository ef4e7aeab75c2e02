"""The runner that serves a model, as a family uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

import torch

from sie_pytorch.forward.choice.candidates import takes_lora
from sie_pytorch.forward.protocol import Batch, LoraRunner, LowRank, LowRankPacker, Runner


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """The runner that serves a model, with reasons."""

    name: str
    """The name of its `RunnerSpec`, or `padded`; `padded (equal lengths)` if padding changes the states."""
    reason: str
    """Why it serves: its proof, and the refusals of those tried before it."""
    precision: str
    """Precision of the computation: `float32`, `bfloat16` or `float16`."""
    _: KW_ONLY
    model_type: str
    hidden_size: int
    attention_layers: int
    max_sequence_length: int | None
    """Tokens of a sequence that the positions allow; None if the architecture sets no limit."""
    memory_bytes: int
    """Bytes of the weights on the device."""
    embeds_types: bool = False
    """True if type 0 has an embedding, so types must be passed for single texts too, if the tokenizer gives types."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """For `ModelFacts.notes`: the runner, and every choice an operator should know.

    Under `lora`, the reason if its runner takes no LoRA adapters.
    """


class BuiltRunner:
    """The runner that serves a model, with its properties. Moves inputs to its device; computes no gradients."""

    def __init__(self, runner: Runner, info: RunnerInfo, device: torch.device) -> None:
        self.info = info
        self._runner = runner
        self._device = device

    @property
    def takes_lora(self) -> bool:
        """Whether `forward` takes low-rank factors."""
        return takes_lora(self._runner)

    @property
    def linear_shapes(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers that LoRA factors may target; none if it takes no LoRA."""
        return self._runner.linear_shapes if isinstance(self._runner, LoraRunner) else {}

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Compute the last hidden states; see `Runner.forward`. Pass factors only if it `takes_lora`."""
        tokens = (batch.ids, batch.positions, batch.types)
        ids, positions, types = (each if each is None else each.to(self._device, non_blocking=True) for each in tokens)
        assert ids is not None
        assert positions is not None
        return self._runner.forward(replace(batch, ids=ids, positions=positions, types=types))

    @torch.inference_mode()
    def pack_low_rank(self, low_rank: LowRank) -> int:
        """Have the runner pack factors if it does so; see `LowRankPacker.pack_low_rank`."""
        return self._runner.pack_low_rank(low_rank) if isinstance(self._runner, LowRankPacker) else 0
