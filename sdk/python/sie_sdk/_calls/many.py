"""The calls of many items: which requests each is made of, and what its answers become.

How requests are cut, sent again and run side by side is that of `_batches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Protocol, TypeVar

from sie_sdk._calls.batches import Ask, Batch, Batches, ItemMap
from sie_sdk._calls.exchange import Operation
from sie_sdk._requests.writer import are_large, as_item
from sie_sdk.errors import IncompleteBatchError, RequestError
from sie_sdk.many import FailedItem, RankedQuery, ScoreMany
from sie_sdk.settings import ManySettings, ScoreManySettings
from sie_sdk.types import ItemLike, ScoreEntry, ScoreResult

Result = TypeVar("Result")
Many = TypeVar("Many", covariant=True)
AskScores = Callable[[ItemMap, Sequence[ItemMap]], Operation[ScoreResult]]
"""Has items scored against a query by one request."""
Queries = Iterable[tuple[ItemLike, Iterable[ItemLike]]]
"""Queries, each with its documents."""


class MadeOf(Protocol[Result, Many]):
    """Makes the outcome of a call of its results and of the items that failed."""

    def __call__(self, results: list[Result | None], failed: list[FailedItem]) -> Many:
        """Make it."""
        ...


def item_batches(
    items: Iterable[ItemLike], ask: Ask[Result], make: MadeOf[Result, Many], said: ManySettings
) -> Batches[Result | FailedItem, Many]:
    """Plan the requests of a call whose items are answered each by itself.

    Raises:
        TypeError: `items` is a single item.
        ValueError: `batch_size` or `parallel` is below 1.
        ImportError: A bar is wanted and tqdm is not installed.
    """
    _check_several(items, "items")

    def batches() -> Iterator[Batch[Result]]:
        left, first = iter(items), 0
        while batch := list(islice(left, said["batch_size"])):
            yield Batch(batch, ask, first)
            first += len(batch)

    def pieces(batch: Batch[Result]) -> Iterator[Result | FailedItem]:
        failed = {each.place: each for each in batch.failed}
        for place, answer in enumerate(batch.answers, batch.first):
            yield failed[place] if answer is None else answer

    def outcome(every: Iterable[Result | FailedItem]) -> Many:
        results: list[Result | None] = []
        failed: list[FailedItem] = []
        for each in every:
            if isinstance(each, FailedItem):
                failed.append(each)
                results.append(None)
            else:
                results.append(each)
        return make(results, failed)

    return Batches(batches(), pieces, outcome, len(items) if isinstance(items, Sized) else None, said)


def score_batches(
    model: str, queries: Queries, ask: AskScores, said: ScoreManySettings
) -> Batches[RankedQuery, ScoreMany]:
    """Plan the requests of `score_many` and `score_iter`; errors are those of `item_batches`.

    A query has one batch at least, and its ranking is complete with its last one.
    """
    _check_several(queries, "queries")
    rankings: dict[int, _Ranking] = {}

    def batches() -> Iterator[Batch[ScoreEntry]]:
        for place, pair in enumerate(queries):
            query, documents = _pair(pair, f"queries[{place}]")
            listed, of_query = list(documents), _of_query(query, place, ask)
            rankings[place] = _Ranking(model, query, listed)
            for first in range(0, len(listed) or 1, said["batch_size"]):
                part = listed[first : first + said["batch_size"]]
                yield Batch(part, of_query, first, place, large=are_large([query]))

    def pieces(batch: Batch[ScoreEntry]) -> Iterator[RankedQuery]:
        place = batch.query or 0
        rankings[place].take(batch)
        if batch.first + len(batch.answers) == len(rankings[place].scores):
            yield rankings.pop(place).ranked()

    def outcome(every: Iterable[RankedQuery]) -> ScoreMany:
        ranked = list(every)
        failed = [each for query in ranked for each in query.failed]
        return ScoreMany([each.result for each in ranked], failed, [each.scores for each in ranked])

    return Batches(batches(), pieces, outcome, _count(queries), said)


class _Ranking:
    """The documents of one query: their names and what they scored, in their order."""

    def __init__(self, model: str, query: ItemLike, documents: Sequence[ItemLike]) -> None:
        self.scores = [math.nan] * len(documents)
        self._model = model
        self._query_id = _id(query)
        self._names = [_id(document) or f"item-{place}" for place, document in enumerate(documents)]
        self._entries: list[ScoreEntry] = []
        self._failed: list[FailedItem] = []

    def take(self, batch: Batch[ScoreEntry]) -> None:
        """Take the answers of a batch; documents without one have failed."""
        for place, entry in enumerate(batch.answers, batch.first):
            if entry is not None:
                self.scores[place] = entry["score"]
                self._entries.append({**entry, "item_id": self._names[place]})
        self._failed += sorted(batch.failed, key=lambda failed: failed.place)

    def ranked(self) -> RankedQuery:
        """Rank the documents, the best first; equal ones keep their order."""
        ranked = sorted(self._entries, key=lambda entry: -entry["score"])
        result = ScoreResult(model=self._model, scores=[{**each, "rank": rank} for rank, each in enumerate(ranked)])
        if self._query_id is not None:
            result["query_id"] = self._query_id
        return RankedQuery(result, self._failed, self.scores)


def _of_query(query: ItemLike, place: int, ask: AskScores) -> Ask[ScoreEntry]:
    """Have documents scored against one query; each is named by its place, as ids need not differ."""

    def asked(documents: Sequence[ItemMap]) -> Operation[list[ScoreEntry]]:
        try:
            query_map = as_item(query, f"queries[{place}]")
        except (TypeError, ValueError) as error:
            raise RequestError(str(error), param="query") from error
        result = yield from ask(query_map, [{**document, "id": str(at)} for at, document in enumerate(documents)])
        entries = {entry["item_id"]: entry for entry in result["scores"]}
        places = [str(at) for at in range(len(documents))]
        if sorted(entries) != sorted(places):
            missing = [at for at in places if at not in entries]
            message = f"{len(documents)} items were sent and {len(entries)} scores came back"
            raise IncompleteBatchError(message, results=result["scores"], missing_ids=missing, expected=len(documents))
        return [entries[at] for at in places]

    return asked


def _pair(pair: object, name: str) -> tuple[ItemLike, Iterable[ItemLike]]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{name} is no pair of a query and its documents")
    query, documents = pair
    _check_several(documents, f"{name}[1]")
    return query, documents


def _count(queries: Queries) -> int | None:
    """Return how many documents there are; None where only reading them would tell."""
    sizes = [
        len(pair[1]) if isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[1], Sized) else None
        for pair in (queries if isinstance(queries, Sequence) else [None])
    ]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _check_several(items: object, name: str) -> None:
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise TypeError(f"{name} is one {type(items).__name__}; give a list, or anything else that can be iterated")


def _id(item: ItemLike) -> str | None:
    return item.get("id") if isinstance(item, Mapping) else None
