"""The keyword arguments of the clients' calls, written once: what a call is annotated with, and its defaults.

An application that passes them on may annotate its own function with `**settings: Unpack[EncodeSettings]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypedDict

from sie_sdk.types import InputType, OutputDtype, OutputType, Priority, Truncate, WatchMode


class LookupSettings(TypedDict, total=False):
    """Of every call. `timeout_s` is the connect and read timeout of each attempt, in place of the client's."""

    timeout_s: float | None


class WaitSettings(LookupSettings, total=False):
    """Of every call to a model.

    Attributes:
        gpu: The machine profile to run on, or `pool/profile`.
        wait_for_capacity: Whether to wait while the server is out of reach or has no worker for the model yet.
        provision_timeout_s: The budget of all waits of a request in seconds; 900 by default, and 10 for a server that
            never answered this client.
    """

    gpu: str | None
    wait_for_capacity: bool
    provision_timeout_s: float | None


class CallSettings(WaitSettings, total=False):
    """Of every inference call.

    Attributes:
        instruction: The instruction the model is prompted with.
        truncate: Which end of a long text to cut, `end` or `start`, or `error` to refuse it.
        options: The model family's own options, e.g. `{"profile": "…"}`.
        max_oom_retries: How often to try again after the device ran out of memory.
        priority: `interactive` for a larger share of the device where others wait, `bulk` for a smaller one; the same
            share as theirs by default.
    """

    instruction: str | None
    truncate: Truncate | None
    options: Mapping[str, Any] | None
    max_oom_retries: int
    priority: Priority | None


class ScoreSettings(CallSettings, total=False):
    """Of `score`. `top_k` is how many of the best are returned; all by default."""

    top_k: int | None


class EncodeSettings(CallSettings, total=False):
    """Of `encode`.

    Attributes:
        output_types: Of `dense`, `sparse`, `multivector`; the model's own choice by default.
        output_dtype: `float32` (the default), `float16`, `int8`, `uint8`, `binary` or `ubinary`.
        is_query: Whether the items are queries; another spelling of `input_type`.
        input_type: `query` or `document`, which selects the model's prompt; the plain text by default.
        dimensions: One of the model's Matryoshka sizes for `dense`; the native one by default.
    """

    output_types: Sequence[OutputType] | None
    output_dtype: OutputDtype | None
    is_query: bool | None
    input_type: InputType | None
    dimensions: int | None


class ExtractSettings(CallSettings, total=False):
    """Of `extract`.

    Attributes:
        labels: What to look for; models whose weights decide that take none.
        output_schema: A JSON Schema of the result's `data`, for models that take one.
    """

    labels: Sequence[str] | None
    output_schema: Mapping[str, Any] | None


class TokenizeSettings(WaitSettings, total=False):
    """Of `tokenize`. `add_special_tokens` says whether the special tokens around a text are listed; they are."""

    add_special_tokens: bool


class CapacitySettings(LookupSettings, total=False):
    """Of `get_capacity`. `gpu` is the machine profile whose workers are told; all by default."""

    gpu: str | None


class AwaitSettings(TypedDict, total=False):
    """Of `wait_for_capacity`.

    Attributes:
        model: Has this model loaded too: a short text is sent to it, which has a cluster without workers start one.
        timeout_s: How long to wait in all; 900 by default.
        poll_interval_s: Seconds between two looks; 5 by default.
    """

    model: str | None
    timeout_s: float | None
    poll_interval_s: float


class WatchSettings(LookupSettings, total=False):
    """Of `watch`. `mode` is `worker`, `cluster`, or `auto` for what the server is."""

    mode: WatchMode


class ManySettings(TypedDict, total=False):
    """Of calls that are made of several requests.

    Attributes:
        batch_size: The most items of a request; 64 by default.
        parallel: The most requests in flight; 4 by default.
        progress: Whether to show a bar of tqdm; None for one on a terminal where tqdm is installed.
    """

    batch_size: int
    parallel: int
    progress: bool | None


class EncodeManySettings(EncodeSettings, ManySettings, total=False):
    """Of `encode_many` and `encode_iter`."""


class ExtractManySettings(ExtractSettings, ManySettings, total=False):
    """Of `extract_many` and `extract_iter`."""


class ScoreManySettings(CallSettings, ManySettings, total=False):
    """Of `score_many` and `score_iter`."""


DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {"wait_for_capacity": True, "max_oom_retries": 3, "add_special_tokens": True, "batch_size": 64, "parallel": 4}
    | {"poll_interval_s": 5.0, "mode": "auto"}
)
"""What the keyword arguments are where they are not given; None for those that are not here."""
