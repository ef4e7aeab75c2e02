"""Calls of many items: cut into requests, run side by side by a shell, failures told by item.

A request that fails for one of its items is sent again without it, or in halves until it is found. A failure that
concerns no item ends the call: what was answered is kept, and the rest is told with that failure.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from sie_sdk._calls.exchange import Offload, Operation
from sie_sdk._calls.progress import Bar, bar
from sie_sdk._requests.writer import are_large, as_item, size_of
from sie_sdk.errors import (
    IncompleteBatchError,
    InputTooLongError,
    RequestError,
    ResourceExhaustedError,
    ServerError,
    SIEError,
)
from sie_sdk.many import FailedItem
from sie_sdk.settings import ManySettings
from sie_sdk.types import ItemLike

Answer = TypeVar("Answer")
Outcome = TypeVar("Outcome")
Piece = TypeVar("Piece")

ItemMap = Mapping[str, Any]
Ask = Callable[[Sequence[ItemMap]], Operation[list[Answer]]]
"""Has items answered by one request, each with one answer in their order."""

_LARGEST_REQUEST: Final = 8 * 2**20
"""Bytes of texts and media after which a request takes no further item: a quarter of what a server takes."""
_ITEM: Final = re.compile(r"items\[(\d+)\]")
_STATUSES_OF_ITEMS: Final = frozenset({400, 413, 422, 500})
"""Those of refusals and failures that are of an item where `param` names one."""
_OF_AN_ITEM: Final = frozenset({"INFERENCE_ERROR", "NON_FINITE_OUTPUT"})
"""Failures of a model that another item may not have."""


@dataclass(slots=True)
class Batch(Generic[Answer]):
    """Items that go to the server together, if they fit into one request and none of them fails."""

    items: Sequence[ItemLike]
    ask: Ask[Answer]
    first: int = 0
    """The place of the first item."""
    query: int | None = None
    answers: list[Answer | None] = field(init=False)
    failed: list[FailedItem] = field(init=False, default_factory=list)
    large: bool = False
    """Whether preparing a request takes long, whatever the items are."""
    refusal: SIEError | ValueError | None = field(init=False, default=None)
    """The last failure of a request that named neither an item nor the query, but for the length of a text."""
    ended: Exception | None = field(init=False, default=None)
    """The failure that left items unanswered and concerns none of them."""

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.items)

    def run(self) -> Operation[None]:
        """Have the items answered.

        Raises:
            SIEError: A failure that concerns no item.
        """
        large, left = self.large or are_large(self.items), iter(range(len(self.items)))
        while True:
            if large:
                yield Offload()
            part = list(self._next_request(left))
            if not part:
                return
            parts = [part]
            while parts:
                parts.extend((yield from self._request(parts.pop())))

    def end(self, error: Exception) -> None:
        """Tell the items that were neither answered nor told with this error."""
        self.ended = error
        told = {each.place - self.first for each in self.failed}
        for place, answer in enumerate(self.answers):
            if answer is None and place not in told:
                self._tell(place, error)

    def _next_request(self, left: Iterator[int]) -> Iterator[tuple[int, ItemMap]]:
        """Yield the places and maps of as many items as a request takes; tell those that are none."""
        size = 0
        for place in left:
            try:
                item = as_item(self.items[place], f"items[{self.first + place}]")
            except (TypeError, ValueError) as error:
                self._tell(place, error)
                continue
            yield place, item
            size += size_of(item)
            if size > _LARGEST_REQUEST:
                return

    def _request(self, part: list[tuple[int, ItemMap]]) -> Operation[list[list[tuple[int, ItemMap]]]]:
        """Send one request; return those to send in its place where it failed for an item."""
        try:
            answers = yield from self.ask([item for _, item in part])
        except (SIEError, ValueError) as error:
            return self._without_blamed(part, error)
        for (place, _), answer in zip(part, answers, strict=True):
            self.answers[place] = answer
        return []

    def _without_blamed(
        self, part: list[tuple[int, ItemMap]], error: SIEError | ValueError
    ) -> list[list[tuple[int, ItemMap]]]:
        if self.query is not None and _param(error).startswith("query"):
            for place, _ in part:
                self._tell(place, error)
            return []
        blamed = _blamed(error)
        if blamed is not None and blamed < len(part):
            self._tell(part[blamed][0], error)
            rest = part[:blamed] + part[blamed + 1 :]
            return [rest] if rest else []
        if not isinstance(error, InputTooLongError):
            self.refusal = error
        if not _may_be_of_an_item(error):
            raise error
        if len(part) == 1:
            self._tell(part[0][0], error)
            return []
        return [part[len(part) // 2 :], part[: len(part) // 2]]

    def _tell(self, place: int, error: Exception) -> None:
        item = self.items[place]
        item_id = item.get("id") if isinstance(item, Mapping) else None
        self.failed.append(FailedItem(self.first + place, item_id, error, self.query))


class Batches(AbstractContextManager["Batches[Piece, Outcome]"], Generic[Piece, Outcome]):
    """The batches of one call of many items, each with the operation that has it answered.

    They are drawn one by one. A shell runs at most `parallel` at once, and takes what comes of them in their order:
    the pieces of each batch as it is done, or the outcome of all.

    Args:
        batches: Made as they are drawn.
        pieces: Makes of a batch what is given to the caller one by one; called once for each batch, in their order.
        outcome: Makes one result of all pieces.
        total: How many items there are; None where that is not known.
        said: The settings of the call.
    """

    _bar: Bar

    def __init__(
        self,
        batches: Iterable[Batch[Any]],
        pieces: Callable[[Batch[Any]], Iterable[Piece]],
        outcome: Callable[[Iterable[Piece]], Outcome],
        total: int | None,
        said: ManySettings,
    ) -> None:
        if said["batch_size"] < 1 or said["parallel"] < 1:
            raise ValueError(f"batch_size is {said['batch_size']} and parallel {said['parallel']}; 1 is the least")
        self.parallel = said["parallel"]
        self._source = batches
        self._pieces = pieces
        self._outcome = outcome
        self._answered = False
        self._refused = 0
        self._ended: SIEError | ValueError | None = None
        self._open_bar = bar(said["progress"], total)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[Batch[Any], Operation[None]]]:
        for batch in self._source:
            yield batch, self._run(batch)

    def __enter__(self) -> Batches[Piece, Outcome]:
        self._bar = self._open_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def pieces(self, batch: Batch[Any]) -> Iterable[Piece]:
        """Return what one batch gives.

        Raises:
            SIEError: It was left unanswered by a failure that concerns no item.
        """
        if batch.ended is not None:
            raise batch.ended
        return self._pieces(batch)

    def outcome(self, done: Iterable[Batch[Any]]) -> Outcome:
        """Return what was answered of all batches.

        Raises:
            SIEError: Nothing was, and the failure concerns no item.
        """
        if self._ended is not None and not self._answered:
            raise self._ended
        return self._outcome(piece for batch in done for piece in self._pieces(batch))

    def _run(self, batch: Batch[Any]) -> Operation[None]:
        if self._ended is None:
            try:
                yield from batch.run()
            except (SIEError, ValueError) as error:
                batch.end(error)
                self._ended = error
            self._count(batch)
        else:
            batch.end(self._ended)
        batch.items = ()

    def _count(self, batch: Batch[Any]) -> None:
        with self._lock:
            answered = len(batch.answers) - len(batch.failed)
            self._answered = self._answered or answered > 0
            self._refused += batch.refusal is not None and not answered
            if self._refused >= self.parallel and not self._answered:
                self._ended = batch.refusal  # no item was taken yet, of several batches: the others need not be tried
            self._bar.update(len(batch.answers))


def _blamed(error: Exception) -> int | None:
    """Return the place in its request of the item an error names."""
    found = _ITEM.match(_param(error))
    return int(found[1]) if found and getattr(error, "status_code", None) in _STATUSES_OF_ITEMS else None


def _may_be_of_an_item(error: Exception) -> bool:
    """Whether a request with fewer or other items may succeed."""
    match error:
        case ServerError(code=code) if code in _OF_AN_ITEM:
            return True
        case RequestError(status_code=413) | ServerError(status_code=500, code=None):
            return True
    return isinstance(error, (IncompleteBatchError, InputTooLongError, ResourceExhaustedError, ValueError))


def _param(error: Exception) -> str:
    return getattr(error, "param", None) or ""
