"""Asks models' tokenizers for the tokens of texts and the texts of tokens, on the threads that prepare requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from sie_core.concurrency.tasks import within
from sie_core.contracts import DecodeRequest, InferenceError, InvalidInput, Token, TokenizeRequest
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import deadline_exceeded, request_error
from sie_core.engine.requests.inflight import Pending

Tokens = Sequence[Sequence[Token]]

# Characters and tokens that wait or are asked about; a lone request may have more.
MOST_WAITING: Final = 2**24
# Error texts for models whose adapter has no answer.
_LACKS: Final = {
    TokenizeRequest: "shows no tokens: its family has no tokenizer of whole texts to ask. Use the tokenizer in its "
    "weights' folder, or leave it to the model, which cuts texts itself (`truncate`).",
    DecodeRequest: "makes no texts of tokens: its family has no tokenizer to ask for them. Use the tokenizer in its "
    "weights' folder.",
}


class TokenizerTurns:
    """Lets one request at a time ask a tokenizer, and bounds the waiting requests. Used on the event loop."""

    # Showing tokens makes an object of each: a few clients that ask for them would take every thread from inference.

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def turn(self, request: TokenizeRequest | DecodeRequest) -> AsyncIterator[None]:
        """Wait for a turn and have it, or raise `QUEUE_FULL` or `DEADLINE_EXCEEDED`."""
        size = sum(map(len, request.texts if isinstance(request, TokenizeRequest) else request.ids))
        if self._waiting and self._waiting + size > MOST_WAITING:
            message = f"{self._waiting} characters wait already for tokenizers, and {MOST_WAITING} may; retry shortly."
            raise InferenceError("QUEUE_FULL", message)
        self._waiting += size
        try:
            deadline = request.deadline
            if not await within(self._turn.acquire(), None if deadline is None else deadline - self._clock()):
                raise deadline_exceeded()
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._waiting -= size


def ask_tokenizer(pending: Pending[Any]) -> None:
    """Answer a request by its model's tokenizer, unless it is settled; on a thread."""
    request, model = pending.request, pending.model
    try:
        if not pending.settled:
            pending.succeed(_ask(request, model))
    except NotImplementedError:
        pending.fail(InvalidInput(f"{model.id} {_LACKS[type(request)]}", param="model"))
    except BaseException as error:
        pending.fail(request_error(error, "tokenisation", request.request_id, model.id, pending.trace_id))
    finally:
        pending.lease.release()


def _ask(request: object, model: LoadedModel) -> object:
    if isinstance(request, TokenizeRequest):
        return model.adapter.tokenize(request.texts, special=request.special, most=request.most)
    assert isinstance(request, DecodeRequest)
    return model.adapter.decode(request.ids, special=request.special)
