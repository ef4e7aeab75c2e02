"""The calls that every framework makes: texts in, all of the results out, or the error of the first that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from sie_sdk import EncodeMany, ExtractMany, ScoreMany, SIEAsyncClient, SIEClient
from sie_sdk.types import EncodeResult, ExtractResult, InputType, OutputType

Result = TypeVar("Result", EncodeResult, ExtractResult)


@dataclass(frozen=True)
class Calls:
    """One model of one server.

    Methods raise the `SIEError` of the first text that fails, or the `TypeError` or `ValueError` of one that is no
    text; there are no partial results. An asynchronous call uses connections of its own, so that any event loop may
    make it.

    Attributes:
        model: The model's id.
        base_url: The server; `SIE_BASE_URL` by default.
        api_key: The bearer key; `SIE_API_KEY` by default, where the server is that of `SIE_BASE_URL`.
        settings: Further keyword arguments of the SDK's call, e.g. `dimensions`, `instruction`, `options`, `gpu`.
    """

    model: str
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def client(self) -> SIEClient:
        """The client of the synchronous calls."""
        return SIEClient(self.base_url, api_key=self.api_key)

    def encode(self, texts: Sequence[str], output: OutputType, input_type: InputType) -> list[EncodeResult]:
        """Encode texts into one type of vectors, in their order."""
        return _all(self.client.encode_many(self.model, texts, **self._encoding(output, input_type)))

    async def aencode(self, texts: Sequence[str], output: OutputType, input_type: InputType) -> list[EncodeResult]:
        """Encode as `encode` does."""
        async with self._async_client() as client:
            return _all(await client.encode_many(self.model, texts, **self._encoding(output, input_type)))

    def rank(self, query: str, texts: Sequence[str], top_k: int | None = None) -> list[tuple[int, float]]:
        """Rank texts by a query: the place and the score of each of the `top_k` best, the best first."""
        return _ranked(self.client.score_many(self.model, [(query, _named(texts))], **self._plain()), top_k)

    async def arank(self, query: str, texts: Sequence[str], top_k: int | None = None) -> list[tuple[int, float]]:
        """Rank as `rank` does."""
        async with self._async_client() as client:
            return _ranked(await client.score_many(self.model, [(query, _named(texts))], **self._plain()), top_k)

    def extract(self, texts: Sequence[str]) -> list[ExtractResult]:
        """Extract from texts, in their order."""
        return _all(self.client.extract_many(self.model, texts, **self._plain()))

    async def aextract(self, texts: Sequence[str]) -> list[ExtractResult]:
        """Extract as `extract` does."""
        async with self._async_client() as client:
            return _all(await client.extract_many(self.model, texts, **self._plain()))

    def dims(self) -> int:
        """Return how many dimensions its dense vectors have.

        Raises:
            ValueError: The model has no dense vectors.
        """
        dims = self.settings.get("dimensions") or self.client.get_model(self.model).get("dims", {}).get("dense")
        if dims is None:
            raise ValueError(f"{self.model} has no dense vectors")
        return int(dims)

    def _async_client(self) -> SIEAsyncClient:
        return SIEAsyncClient(self.base_url, api_key=self.api_key)

    def _encoding(self, output: OutputType, input_type: InputType) -> Any:
        return {"output_types": [output], "input_type": input_type, **self._plain()}

    def _plain(self) -> Any:
        return {"progress": False, **self.settings}


def _named(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"id": str(place), "text": text} for place, text in enumerate(texts)]


def _ranked(scored: ScoreMany, top_k: int | None) -> list[tuple[int, float]]:
    if scored.failed:
        raise scored.failed[0].error
    (result,) = scored.results
    return [(int(each["item_id"]), each["score"]) for each in result["scores"][:top_k]]


def _all(many: EncodeMany | ExtractMany) -> list[Any]:
    if many.failed:
        raise many.failed[0].error
    return list(many.results)
