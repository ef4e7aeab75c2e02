"""The headers of a successful inference reply."""

from __future__ import annotations

from sie_core.api.inference.call import Call
from sie_core.contracts import InferenceReply


def reply_headers(reply: InferenceReply, call: Call) -> dict[str, str]:
    """Write the timings (ms) and, where they apply, what computed it, truncation, LoRA, ignored options and waits."""
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
    told = [each.partition(" ") for each in reply.computed]
    for name, values in (("Precision", [each[0] for each in told]), ("Runner", [each[2] for each in told])):
        shown = [value for value in dict.fromkeys(values) if value and value.isascii() and value.isprintable()]
        if shown:
            headers[f"X-SIE-{name}"] = ", ".join(shown)
    if reply.config:
        headers["X-SIE-Model-Revision"] = reply.config
    if reply.ignored_options:
        headers["X-SIE-Ignored-Options"] = ", ".join(reply.ignored_options)
    if call.wait_applied:
        headers["Preference-Applied"] = f"wait={call.load_wait.seconds:g}"
    return headers
