"""Puts the outputs of a request's units back together: unit by unit in, encoded items in request order out.

An item is encoded as soon as its last unit is there, while later batches still run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import inf
from typing import get_args

from sie_core.contracts import (
    Adapter,
    InferenceRequest,
    ItemOutput,
    OutputType,
    Task,
    Truncation,
    Unit,
    Usage,
)
from sie_core.engine.pipeline.scoring import Comparison, encoded_units
from sie_core.engine.requests.output import Leaving
from sie_core.postprocess import encode_extraction, encode_item, encode_score, require_finite, require_form, shorten

_OUTPUT_TYPES: tuple[OutputType, ...] = get_args(OutputType)
_EXTRACTED = ("entities", "relations", "classifications", "objects", "data")


def assemble(request: InferenceRequest, task: Task, leaving: Leaving, adapter: Adapter) -> Assembly:
    """Prepare a request, and make what collects the outputs of its units.

    Raises:
        InvalidInput: A field of the request is wrong.
        ValueError: The adapter's units do not cover the items; the text is for the log.
    """
    if task.operation != "score" or not task.output_types or task.query is None:
        return Assembly(request, task, leaving, adapter, adapter.prepare(request.items, task))
    # A task of `score` that names an output asks for scores computed of those vectors.
    compared = task.output_types[0]
    comparison = Comparison(compared, adapter.facts.similarity.get(compared))
    return Assembly(request, task, leaving, adapter, encoded_units(request, task.query, task, adapter), comparison)


class Assembly:
    """Collects the outputs of `units`. `deliver` may be called from several threads at once.

    Raises:
        ValueError: The adapter's units do not cover the items; the text is for the log.
    """

    def __init__(
        self,
        request: InferenceRequest,
        task: Task,
        leaving: Leaving,
        adapter: Adapter,
        units: Sequence[Unit],
        comparison: Comparison | None = None,
    ) -> None:
        self._request = request
        self._task = task
        self._leaving = leaving
        self._adapter = adapter
        self.units = units
        self._outputs: list[ItemOutput | None] = [None] * len(units)
        # Compares the items with the query, which follows them as the last item.
        self._comparison = comparison
        self._positions = _positions(units, len(request.items) + (comparison is not None))
        self._missing = [len(positions) for positions in self._positions]
        self._items: list[bytes] = [b""] * len(request.items)
        self._items_left = len(self._positions)
        self._lock = threading.Lock()

    def deliver(self, index: int, output: ItemOutput) -> bool:
        """Take the output of the unit at `index`; return whether it was the last of the request.

        Raises:
            InferenceError: `NON_FINITE_OUTPUT`, naming the item; what the adapter refused it with.
        """
        if output.refused is not None:
            refused, output.refused = output.refused, None
            try:
                raise refused
            finally:
                del refused  # it and this frame would hold each other
        item = self.units[index].item
        with self._lock:
            self._outputs[index] = output
            self._missing[item] -= 1
            if self._missing[item]:
                return False
        self._complete(item)
        with self._lock:
            self._items_left -= 1
            return not self._items_left

    def items(self) -> list[bytes]:
        """Return the encoded items, once all are there."""
        return self._items

    def usage(self) -> Usage:
        """Count what the request consumed."""
        tokens = sum(unit.tokens for unit in self.units)
        images = sum(len(item.images) for item in self._request.items)
        if self._request.query is not None:
            images += len(self._request.query.images)
        return Usage(input_tokens=tokens, images=images)

    def truncated(self) -> int:
        """Count the items that were truncated."""
        return sum(self._truncation(item) is not None for item in range(len(self._positions)))

    def _complete(self, item: int) -> None:
        is_query = item == len(self._request.items)
        output = self._output(item, "query" if is_query else f"items[{item}]")
        if self._comparison is None:
            self._items[item] = self._encode(output, item)
            return
        comparison = self._comparison
        scores = comparison.add_query(output) if is_query else comparison.add_document(item, output)
        for place, score in scores.items():
            require_finite(ItemOutput(score=score), f"items[{place}]")
            self._items[place] = encode_score(score, self._request.items[place].id, self._truncation(place))

    def _output(self, item: int, where: str) -> ItemOutput:
        output = self._combine(item)
        for name in _OUTPUT_TYPES:
            if name not in self._task.output_types:
                setattr(output, name, None)
            elif getattr(output, name) is None:
                raise ValueError(f"the adapter gave no {name} output for {where}")
        require_form(output, self._dims(output), where)
        require_finite(output, where)
        if output.dense is not None and self._task.dimensions is not None:
            output.dense = shorten(output.dense, self._task.dimensions, output.normalized)
        return self._leaving.convert(output, self._task.input_type, where)

    def _dims(self, output: ItemOutput) -> Mapping[OutputType, int]:
        # An adapter may shorten a dense vector itself.
        dims, wanted = self._adapter.facts.dims, self._task.dimensions
        shortened = wanted is not None and output.dense is not None and len(output.dense) == wanted
        return {**dims, "dense": wanted} if shortened and wanted else dims

    def _encode(self, output: ItemOutput, item: int) -> bytes:
        item_id, truncated = self._request.items[item].id, self._truncation(item)
        if self._task.operation == "encode":
            return encode_item(output, self._leaving.dtype, item, item_id, truncated)
        if self._task.operation == "score":
            if output.score is None:
                raise ValueError(f"the adapter gave no score for items[{item}]")
            return encode_score(output.score, item_id, truncated)
        if all(getattr(output, name) is None for name in _EXTRACTED):
            raise ValueError(f"the adapter extracted none of {', '.join(_EXTRACTED)} from items[{item}]")
        return encode_extraction(output, item_id, truncated)

    def _combine(self, item: int) -> ItemOutput:
        positions = self._positions[item]
        outputs = [output for position in positions if (output := self._outputs[position]) is not None]
        for position in positions:
            self._outputs[position] = None
        if len(positions) == 1:
            return outputs[0]
        return self._adapter.combine([self.units[position] for position in positions], outputs)

    def _truncation(self, item: int) -> Truncation | None:
        cuts = (self.units[position].truncated for position in self._positions[item])
        return next((cut for cut in cuts if cut is not None), None)


def _positions(units: Sequence[Unit], items: int) -> list[list[int]]:
    positions: list[list[int]] = [[] for _ in range(items)]
    for position, unit in enumerate(units):
        if not 0 <= unit.item < items or not 1 <= unit.cost < inf or not 0 <= unit.tokens < inf:  # NaN is none of these
            made = f"cost {unit.cost} and {unit.tokens} tokens"
            raise ValueError(f"the adapter made a unit of items[{unit.item}] of {items} with {made}")
        try:
            hash(unit.key)  # it would break the queue of all requests
        except TypeError as error:
            raise ValueError(f"the adapter made a unit of items[{unit.item}] with a key of {error}") from error
        positions[unit.item].append(position)
    if not all(positions):
        raise ValueError(f"the adapter made no unit of items[{positions.index([])}]")
    return positions
