"""Puts the outputs of a request's units back together: unit by unit in, encoded items in request order out.

An item is encoded as soon as its last unit is there, while other slices are prepared and other batches run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import cast, get_args

from sie_core.contracts import (
    Adapter,
    InferenceReply,
    InferenceRequest,
    InvalidInput,
    ItemOutput,
    OutputType,
    Task,
    Timing,
    Truncation,
    Unit,
    Usage,
)
from sie_core.postprocess import encode_extraction, encode_item, encode_score, require_finite, require_form, shorten
from sie_core.postprocess.plan import OutputPlan
from sie_core.postprocess.reply_size import ReplySize
from sie_core.postprocess.similarity import Comparison

_OUTPUT_TYPES: tuple[OutputType, ...] = get_args(OutputType)
_EXTRACTED = ("entities", "relations", "classifications", "objects", "data")


@dataclass(slots=True, eq=False)
class ItemParts:
    """The units of one item until it is encoded, and their outputs."""

    item: int
    units: list[Unit] = field(default_factory=list)
    outputs: list[ItemOutput | None] = field(default_factory=list)
    missing: int = 0
    # Whether more units may come.
    open: bool = True


class Assembly:
    """Collects the outputs of a request's units. Units are added on one thread at a time, outputs on any."""

    def __init__(self, request: InferenceRequest, task: Task, plan: OutputPlan, adapter: Adapter) -> None:
        self._request, self._task, self._plan, self._adapter = request, task, plan, adapter
        # A task of `score` that names an output asks for scores computed of those vectors. The query is encoded as one
        # additional item.
        compared = task.output_types[0] if task.operation == "score" and task.output_types else None
        self._comparison = None if compared is None else Comparison(compared, adapter.facts.similarity.get(compared))
        self.size = ReplySize(request, task, plan, adapter.facts)
        self._items: list[bytes] = [b""] * len(request.items)
        self._seen = bytearray(len(request.items) + (compared is not None))
        self._left = len(self._seen)
        self._adding: ItemParts | None = None
        self._cuts: dict[int, Truncation] = {}
        self._tokens = self._query_tokens = 0
        self._lock = threading.Lock()

    def prepare(self) -> Iterator[Unit | None]:
        """Have the adapter prepare the request; a family may prepare lazily, unit by unit.

        If the size of the reply depends on the units, prepare once only to count them and refuse too large a reply
        before any computation. None stands for each counted unit.

        Raises:
            InferenceError: `REPLY_TOO_LARGE`, and whatever the adapter raises.
        """
        if self.size.check():
            for unit in self._adapter.prepare(self._request.items, self._task):
                self.size.expect(unit.cost)
                yield None
            self.size.forget()
        if self._comparison is None:
            yield from self._adapter.prepare(self._request.items, self._task)
        else:
            yield from encoded_units(self._request, self._task, self._adapter)

    def add(self, unit: Unit) -> tuple[ItemParts, int]:
        """Expect a unit's output; return its place, for `deliver`.

        Raises:
            ValueError: The unit breaks the contract; the text is for the log.
            InferenceError: `REPLY_TOO_LARGE`.
        """
        _check(unit, len(self._seen))
        self.size.expect(unit.cost)
        parts = self._adding
        if parts is None or parts.item != unit.item:
            if parts is not None:
                self._close()
            if self._seen[unit.item]:
                raise ValueError(f"the adapter made another unit of items[{unit.item}] after those of other items")
            self._seen[unit.item] = True
            parts = self._adding = ItemParts(unit.item)
        with self._lock:
            parts.units.append(unit)
            parts.outputs.append(None)
            parts.missing += 1
            self._tokens += unit.tokens
            if unit.item == len(self._items):
                self._query_tokens += unit.tokens
            if unit.truncated is not None:
                self._cuts.setdefault(unit.item, unit.truncated)
            return parts, len(parts.units) - 1

    def end(self) -> bool:
        """Expect no more units; return whether the request is complete.

        Raises:
            ValueError: An item has no unit; the text is for the log.
        """
        if not all(self._seen):
            raise ValueError(f"the adapter made no unit of items[{self._seen.index(0)}]")
        return self._close()

    def deliver(self, parts: ItemParts, place: int, output: ItemOutput) -> bool:
        """Take the output of a unit; return whether it was the last of the request.

        Raises:
            InferenceError: `NON_FINITE_OUTPUT`, naming the item; or the adapter's refusal.
        """
        if output.refused is not None:
            refused, output.refused = output.refused, None
            try:
                raise refused
            finally:
                del refused  # it and this frame would hold each other
        with self._lock:
            parts.outputs[place] = output
            parts.missing -= 1
            if parts.missing or parts.open:
                return False
        return self._complete(parts)

    def reply(self, timing: Timing) -> InferenceReply:
        """Make the reply, once all items are there."""
        asked, query, lora = self._request, self._request.query, self._task.lora
        images = 0 if query is None else len(query.images)
        for item in asked.items:
            images += len(item.images)
        return InferenceReply(
            self._items,
            timing,
            Usage(self._tokens, images),
            truncated=len(self._cuts),  # the query's, too
            lora=None if lora is None else lora.name,
            query=Usage() if query is None else Usage(self._query_tokens, len(query.images)),
            query_truncated=len(self._items) in self._cuts,
            computed=(self._adapter.facts.computed,),
        )

    def _close(self) -> bool:
        # The item that was added to has all its units now; their outputs may have come before.
        parts, self._adding = self._adding, None
        if parts is None:
            return not self._left
        with self._lock:
            parts.open = False
            if parts.missing:
                return False
        return self._complete(parts)

    def _complete(self, parts: ItemParts) -> bool:
        item, is_query = parts.item, parts.item == len(self._request.items)
        output = self._output(parts, "query" if is_query else f"items[{item}]")
        comparison = self._comparison
        if comparison is None:
            self._items[item] = self._encode(output, item)
        else:
            for place, score in comparison.add(None if is_query else item, output).items():
                require_finite(ItemOutput(score=score), f"items[{place}]")
                self._items[place] = encode_score(score, self._request.items[place].id, self._cuts.get(place))
        with self._lock:
            self.size.encoded(len(self._items[item]) if item < len(self._items) else 0)
            self._left -= 1
            return not self._left

    def _output(self, parts: ItemParts, where: str) -> ItemOutput:
        outputs = cast("list[ItemOutput]", parts.outputs)  # none is missing
        output = outputs[0] if len(outputs) == 1 else self._adapter.combine(parts.units, outputs)
        for name in _OUTPUT_TYPES:
            if name not in self._task.output_types:
                setattr(output, name, None)
            elif getattr(output, name) is None:
                raise ValueError(f"the adapter gave no {name} output for {where}")
        wanted = self._task.dimensions
        require_form(output, self._adapter.facts.dims if wanted is None else self._dims(output, wanted), where)
        require_finite(output, where)
        if output.dense is not None and wanted is not None:
            output.dense = shorten(output.dense, wanted, output.normalized)
        return self._plan.convert(output, self._task.input_type, where) if self._plan.converters else output

    def _dims(self, output: ItemOutput, wanted: int) -> Mapping[OutputType, int]:
        # An adapter may shorten a dense vector itself.
        dims = self._adapter.facts.dims
        return {**dims, "dense": wanted} if output.dense is not None and len(output.dense) == wanted else dims

    def _encode(self, output: ItemOutput, item: int) -> bytes:
        item_id, truncated = self._request.items[item].id, self._cuts.get(item)
        if self._task.operation == "encode":
            return encode_item(output, self._plan.dtype, item, item_id, truncated)
        if self._task.operation == "score":
            if output.score is None:
                raise ValueError(f"the adapter gave no score for items[{item}]")
            return encode_score(output.score, item_id, truncated)
        if all(getattr(output, name) is None for name in _EXTRACTED):
            raise ValueError(f"the adapter extracted none of {', '.join(_EXTRACTED)} from items[{item}]")
        return encode_extraction(output, item_id, truncated)


def encoded_units(request: InferenceRequest, task: Task, adapter: Adapter) -> Iterator[Unit]:
    """Prepare the query and the documents of a `score` as two `encode` tasks, whose units share batches with anyone's.

    The query comes first, as the item after the documents.
    """
    assert task.query is not None
    as_document = replace(task, operation="encode", query=None, instruction=None, input_type="document")
    as_query = replace(as_document, instruction=task.instruction, input_type="query")
    try:
        for unit in adapter.prepare([task.query], as_query):
            unit.item = len(request.items)
            yield unit
    except InvalidInput as error:
        # Report the fault for `query`, not for the item that the adapter saw.
        param = error.param or ""
        if param.startswith("items[0]"):
            raise error.about(f"query{param.removeprefix('items[0]')}") from error
        raise
    yield from adapter.prepare(request.items, as_document)


def _check(unit: Unit, items: int) -> None:
    made = f"the adapter made a unit of items[{unit.item}] of {items}"
    if not 0 <= unit.item < items or not 1 <= unit.cost < inf or not 0 <= unit.tokens < inf:  # NaN is none of these
        raise ValueError(f"{made} with cost {unit.cost} and {unit.tokens} tokens")
    if not 0 <= unit.nbytes < inf:
        raise ValueError(f"{made} that holds {unit.nbytes} bytes")
    try:
        hash(unit.key)  # it would break the queue of all requests
    except TypeError as error:
        raise ValueError(f"{made} with a key of {error}") from error
