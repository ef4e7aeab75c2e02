"""A processor that keeps the spans which end."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor


class Kept(SpanProcessor):
    """Keeps them in their order."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)
