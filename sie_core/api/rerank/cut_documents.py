"""Cuts queries and documents to a number of tokens before they are ranked, with the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sie_core.api.inference.route import tokenizing
from sie_core.contracts import (
    InferenceBackend,
    InferenceRequest,
    InvalidInput,
    Item,
    Token,
    TokenizeRequest,
)

_TOKENS_AT_ONCE: Final = 65_536
"""How many tokens are requested together; each becomes an object."""


async def cut_documents(
    backend: InferenceBackend, request: InferenceRequest, most: int, param: str
) -> InferenceRequest:
    """Return `request` with each text cut to its first `most` tokens, special ones not counted.

    Raises:
        InferenceError: As `TokenizingBackend.tokenize`; `param` is named where the model cannot tokenize.
    """
    return replace(request, items=await _cut_items(backend, request, request.items, most, param))


async def cut_query(backend: InferenceBackend, request: InferenceRequest, most: int, param: str) -> InferenceRequest:
    """The same with the query alone."""
    if request.query is None:
        return request
    (query,) = await _cut_items(backend, request, [request.query], most, param)
    return replace(request, query=query)


async def _cut_items(
    backend: InferenceBackend, request: InferenceRequest, given: Sequence[Item], most: int, param: str
) -> list[Item]:
    # A text has no more tokens than bytes, so that most texts need no tokenizing.
    items = list(given)
    long = [place for place, item in enumerate(items) if len((item.text or "").encode("utf-8", "surrogatepass")) > most]
    step = max(1, _TOKENS_AT_ONCE // most)
    for start in range(0, len(long), step):
        places = long[start : start + step]
        try:
            tokens = await _tokens(backend, request, [items[place].text or "" for place in places], most)
        except InvalidInput as error:
            raise InvalidInput(f"`{param}` cannot be kept to: {error.message}", param=param) from error
        for place, found in zip(places, tokens, strict=True):
            items[place] = _cut(items[place], found, most)
    return items


async def _tokens(
    backend: InferenceBackend, request: InferenceRequest, texts: Sequence[str], most: int
) -> Sequence[Sequence[Token]]:
    return await tokenizing(backend).tokenize(
        TokenizeRequest(
            request.model,
            texts,
            request.request_id,
            special=False,
            most=most,
            deadline=request.deadline,
            load_wait=request.load_wait,
        )
    )


def _cut(item: Item, tokens: Sequence[Token], most: int) -> Item:
    text = item.text or ""
    ends = [token.stop for token in tokens if token.stop is not None]
    if len(tokens) < most or not ends:
        return item
    return replace(item, text=text[: ends[-1]])
