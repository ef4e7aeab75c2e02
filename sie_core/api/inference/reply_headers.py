"""The headers of a successful inference reply."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

from sie_core.api.inference.call import Call
from sie_core.contracts import InferenceReply

_MOST_NAMES: Final = 8
"""Ignored fields that are told."""
_MOST_NAME: Final = 64
"""Characters of a field's name that a header shows."""
_CONTROLS: Final = dict.fromkeys((*range(32), 44, 127), "?")
"""What no header may hold, and the comma between two names."""


def reply_headers(reply: InferenceReply, call: Call, ignored: Iterable[str] = ()) -> dict[str, str]:
    """Write the timings (ms) and, where they apply, what computed it, truncation, LoRA, ignored options and waits.

    Args:
        reply: The backend's answer.
        call: The request without its body.
        ignored: Fields of the body that no route knows.
    """
    timing = reply.timing
    headers = {
        "X-Queue-Time": f"{timing.queue_ms:.2f}",
        "X-Tokenization-Time": f"{timing.tokenization_ms:.2f}",
        "X-Inference-Time": f"{timing.inference_ms:.2f}",
        "X-Total-Time": f"{timing.total_ms:.2f}",
    }
    if timing.postprocessing_ms:
        headers["X-Postprocessing-Time"] = f"{timing.postprocessing_ms:.2f}"
    if timing.transit_ms is not None:
        headers["X-Queue-Wait-Time"] = f"{timing.transit_ms:.1f}"
    if reply.truncated:
        headers["X-SIE-Truncated"] = str(reply.truncated)
    if reply.lora:
        headers["X-SIE-LoRA"] = reply.lora
    if reply.workers:
        headers["X-SIE-Worker"] = ", ".join(reply.workers)
    headers |= _computed(reply.computed)
    if reply.config:
        headers["X-SIE-Model-Revision"] = reply.config
    if passed_over := [*reply.ignored_options, *map(_shown, islice(ignored, _MOST_NAMES))]:
        headers["X-SIE-Ignored-Options"] = ", ".join(passed_over)
    if call.wait_applied:
        headers["Preference-Applied"] = f"wait={call.load_wait.seconds:g}"
    return headers


@lru_cache(maxsize=256)
def _computed(by: tuple[str, ...]) -> dict[str, str]:
    """Write by what the reply was computed, in each of its parts: `bfloat16 cpu-kernels`."""
    headers, told = {}, [each.partition(" ") for each in by]
    for name, values in (("Precision", [each[0] for each in told]), ("Runner", [each[2] for each in told])):
        shown = [value for value in dict.fromkeys(values) if value and value.isascii() and value.isprintable()]
        if shown:
            headers[f"X-SIE-{name}"] = ", ".join(shown)
    return headers


def _shown(name: str) -> str:
    """Write the name of a field as a header may hold it."""
    return name[:_MOST_NAME].encode("ascii", "backslashreplace").decode().translate(_CONTROLS)
