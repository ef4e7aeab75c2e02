"""Predicts the size of a reply from its vectors before they are computed; a reply beyond its limit is refused."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Final

import numpy as np

from sie_core.contracts import InferenceError, InferenceRequest, ModelFacts, OutputDtype, OutputType, ReplyForm, Task
from sie_core.postprocess.plan import OutputPlan

ITEM_BYTES: Final = 100
"""Bytes of an item in addition to its values: keys, dims, dtype."""
SPARE_TOKENS: Final = 64
"""Tokens that a text may have beyond its bytes: prompts, special tokens, the expansion of a query."""
SPARSE_AS_TEXT: Final = 2.5
"""Characters of JSON for a byte of a sparse vector: an index of four is about seven digits, a float of four twelve."""
EXTRACTION_AS_TEXT: Final = 1.25
"""The same for extractions: texts stay, scores get longer."""


class ReplySize:
    """The bytes of the reply to one request. Used on one thread at a time, `encoded` on any.

    The size of dense vectors is known at once, the size of multi-vectors when their units are made. Sparse vectors and
    extractions have no size before they are computed; they are counted as they are encoded.

    Args:
        request: States the most bytes of the reply, and how its format writes a number.
        task: The adapter's task.
        plan: The outputs of the reply.
        facts: The adapter's facts.
    """

    def __init__(self, request: InferenceRequest, task: Task, plan: OutputPlan, facts: ModelFacts) -> None:
        self._request, self._task, self._plan, self._facts = request, task, plan, facts
        self._most = inf if request.reply.most_bytes is None else request.reply.most_bytes
        self._outputs = plan.output_types if task.operation == "encode" else ()
        # Bytes: known at once, of one vector of a multi-vector, expected, encoded.
        self._known = self._vector = self._expected = self._encoded = 0.0

    def check(self) -> bool:
        """Refuse a reply that is known to be too large; return whether its multi-vectors may make it so.

        Raises:
            InferenceError: `REPLY_TOO_LARGE`.
        """
        items, longest = self._request.items, self._facts.max_sequence_length or inf
        if "multivector" in self._outputs:
            self._vector = self._row_bytes("multivector")
        if self._outputs:
            dense = self._row_bytes("dense") if "dense" in self._outputs else 0.0
            self._known = len(items) * (ITEM_BYTES + dense)
            self._require(self._known)
        if not self._vector or any(item.images for item in items):
            return False
        tokens = sum(min(longest, len((item.text or "").encode()) + SPARE_TOKENS) for item in items)
        return self._known + tokens * self._vector > self._most

    def expect(self, vectors: int) -> None:
        """Count the vectors of a multi-vector, by the unit that was made.

        Raises:
            InferenceError: `REPLY_TOO_LARGE`.
        """
        if self._vector:
            self._expected += vectors * self._vector
            self._require(self._known + self._expected)

    def forget(self) -> None:
        """Expect the units again: the earlier ones were made only to be counted."""
        self._expected = 0.0

    def encoded(self, size: int) -> None:
        """Count the bytes of an item that was encoded.

        Raises:
            InferenceError: `REPLY_TOO_LARGE`.
        """
        extracted = self._task.operation == "extract"
        if extracted or "sparse" in self._outputs:
            as_text = EXTRACTION_AS_TEXT if extracted else SPARSE_AS_TEXT
            self._encoded += size if self._request.reply.float_bytes is None else size * as_text
            self._require(self._encoded)

    def _require(self, size: float) -> None:
        if size > self._most:
            raise _too_large(self._request, size, self._most)

    def _row_bytes(self, output: OutputType) -> float:
        converter, native = self._plan.converters.get(output), self._facts.dims.get(output, 0)
        own = self._task.dimensions or native if output == "dense" else native
        return row_bytes(self._plan.dtype, own if converter is None else converter.dims, self._request.reply)


@lru_cache(maxsize=256)
def row_bytes(dtype: OutputDtype, dims: int, form: ReplyForm) -> float:
    """Return the bytes of one vector of `dims` dimensions in a reply, cast to `dtype`."""
    row = dtype.cast(np.zeros((1, dims), dtype=np.float32))
    number = form.float_bytes if row.dtype.kind == "f" else form.integer_bytes
    return float(row.nbytes if number is None else number * row.size)


def _too_large(request: InferenceRequest, size: float, most: float) -> InferenceError:
    remedies = ["send fewer items per request"]
    if request.reply.float_bytes is not None:
        remedies.append("ask for msgpack, on a route that speaks it (`Accept: application/msgpack`)")
    if request.operation == "encode":
        remedies.append("choose a smaller output_dtype, such as float16 or int8")
    return InferenceError(
        "REPLY_TOO_LARGE",
        f"The reply of {request.model} to {len(request.items)} items has more than {most / 2**20:.0f} MiB "
        f"(SIE_MAX_REPLY_BYTES), {size / 2**20:.0f} MiB at least: {', or '.join(remedies)}.",
    )
