"""Variable-length attention kernels behind one signature: a call attends within every sequence of a packed batch."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from sie_pytorch.forward import RunnerUnfitError

HALF = frozenset({torch.float16, torch.bfloat16})
KNOWN = (
    "query",
    "key",
    "value",
    "cum_seq_q",
    "cum_seq_k",
    "max_q",
    "max_k",
    "dropout_p",
    "is_causal",
    "return_debug_mask",
    "scale",
    "window_size_left",
    "window_size_right",
)
"""The arguments that are passed to the operator below `varlen_attn`."""
Window = tuple[int, int]
"""Keys that a query sees to its left and right, in addition to its own position; -1 is no limit.

Causal is 0 to the right.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The boundaries of sequences."""

    cu_seqlens: torch.Tensor
    """int32 `[sequences + 1]` on the device: the start of each sequence, and the number of all tokens last."""
    longest: int
    """Tokens of the longest."""


class Attend(Protocol):
    """The interface of an attention kernel."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        queries: Bounds,
        keys: Bounds,
        scale: float | None,
        window: Window,
    ) -> torch.Tensor:
        """Let every token attend within its own sequence.

        Args:
            query: `[total, heads, head_dim]`; the last dimension contiguous, as in `key` and `value`.
            key: `[total_keys, key_heads, head_dim]`; `heads` is a multiple of `key_heads`.
            value: As `key`.
            queries: Boundaries of the sequences in `query`.
            keys: Boundaries in `key` and `value`.
            scale: Factor of the scores; None means `head_dim ** -0.5`.
            window: Keys that each query sees. Kernels align windows at the end of a sequence: if it has fewer keys than
                queries, its last query is at its last key.

        Returns:
            `[total, heads, head_dim]`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel and its requirements."""

    name: str
    attend: Attend
    dtypes: frozenset[torch.dtype] = HALF
    head_step: int = 8
    """The head size must be a multiple of this."""
    largest_head: int = 256

    def require(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Check that the kernel takes such states, `[…, head_dim]` each.

        Raises:
            RunnerUnfitError: It does not.
        """
        dtypes = {states.dtype for states in (query, key, value)}
        if len(dtypes) > 1 or not dtypes <= self.dtypes:
            found, taken = _names(dtypes), _names(self.dtypes)
            raise RunnerUnfitError(f"its attention is in {found}, and {self.name} takes {taken}")
        size = query.shape[-1]
        if size % self.head_step or size > self.largest_head:
            raise RunnerUnfitError(
                f"its heads are {size} wide, and {self.name} takes multiples of {self.head_step} up to "
                f"{self.largest_head}"
            )
        if key.shape[-1] != size or value.shape[-1] != size:
            raise RunnerUnfitError(f"its values are {value.shape[-1]} wide and its queries {size}")


def flash_attn() -> Kernel:
    """Return the kernel of the package flash-attn (arXiv 2307.08691).

    Raises:
        ImportError: It is not installed, or was built for another PyTorch.
    """
    from flash_attn import flash_attn_varlen_func

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        queries: Bounds,
        keys: Bounds,
        scale: float | None,
        window: Window,
    ) -> torch.Tensor:
        states: torch.Tensor = flash_attn_varlen_func(
            query,
            key,
            value,
            queries.cu_seqlens,
            keys.cu_seqlens,
            queries.longest,
            keys.longest,
            softmax_scale=scale,
            causal=window[1] == 0,
            window_size=window,
        )
        return states

    return Kernel("flash-attn", attend)


def torch_varlen() -> Kernel:
    """Return PyTorch's own variable-length attention.

    Raises:
        RunnerUnfitError: This PyTorch has no such attention, or one without windows.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise RunnerUnfitError(f"PyTorch {torch.__version__} has no torch.nn.attention.varlen") from error
    takes = inspect.signature(varlen_attn).parameters
    if missing := {"scale", "window_size"}.difference(takes):
        raise RunnerUnfitError(f"varlen_attn of PyTorch {torch.__version__} takes no {', '.join(sorted(missing))}")
    groups = "enable_gqa" in takes  # PyTorch 2.11 takes as many heads of keys as of queries

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        queries: Bounds,
        keys: Bounds,
        scale: float | None,
        window: Window,
    ) -> torch.Tensor:
        times = query.shape[1] // key.shape[1]
        if times > 1 and not groups:
            key, value = (states.repeat_interleave(times, dim=1) for states in (key, value))
        options: dict[str, Any] = {"enable_gqa": True} if times > 1 and groups else {}
        states = varlen_attn(
            query,
            key,
            value,
            queries.cu_seqlens,
            keys.cu_seqlens,
            queries.longest,
            keys.longest,
            scale=scale,
            window_size=window,
            **options,
        )
        assert isinstance(states, torch.Tensor)
        return states

    return Kernel("torch.nn.attention.varlen", attend)


def torch_flash() -> Kernel:
    """Return the operator that `varlen_attn` calls, without its Python overhead, for runners for which the microseconds
    of a call matter.

    PyTorch does not publish it. If its signature differs from the known one, the published function serves.

    Raises:
        RunnerUnfitError: As `torch_varlen`, if that one has to serve.
    """
    operator = getattr(getattr(torch.ops.aten, "_flash_attention_forward", None), "default", None)
    if operator is None or tuple(each.name for each in operator._schema.arguments)[: len(KNOWN)] != KNOWN:
        return torch_varlen()

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        queries: Bounds,
        keys: Bounds,
        scale: float | None,
        window: Window,
    ) -> torch.Tensor:
        left, right = window
        causal = right == 0 and left < 0
        states: torch.Tensor = operator(
            query,
            key,
            value,
            queries.cu_seqlens,
            keys.cu_seqlens,
            queries.longest,
            keys.longest,
            0.0,
            causal,
            False,
            scale=scale,
            window_size_left=left,
            window_size_right=right,
        )[0]
        return states

    return Kernel("torch.ops.aten._flash_attention_forward", attend)


def _names(dtypes: frozenset[torch.dtype] | set[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
