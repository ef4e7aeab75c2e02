"""Shows the tokens of texts with a loaded model's own tokenizer, on a thread of its own. It must not know the device.

Beside the threads that prepare requests: showing tokens makes an object of each, so that a few clients that ask for
them would hold up everybody's requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from sie_core.concurrency.pool import CpuPool
from sie_core.contracts import InferenceError, InvalidInput, Token, TokenizeRequest
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import deadline_exceeded, given_up, request_error

Tokens = Sequence[Sequence[Token]]

MOST_WAITING: Final = 2**24
"""Characters that wait for the thread or are on it, of all texts; a lone request may have more."""

clock = time.monotonic


class Tokenizing:
    """One thread for all models. Its methods are called on the event loop.

    Args:
        give_up_s: Seconds beyond which a request is given up.
    """

    def __init__(self, give_up_s: float) -> None:
        self.pool = CpuPool("sie-tokenize", 1)
        self._give_up_s = give_up_s
        self._waiting = 0

    def start(self) -> None:
        """Start the thread."""
        self.pool.start()

    def close(self, timeout_s: float) -> bool:
        """Join the thread; False where it was still at work after `timeout_s`."""
        return self.pool.close(timeout_s)

    async def tokens(self, model: LoadedModel, request: TokenizeRequest) -> Tokens:
        """List them, unless nobody waits for them any more; see `TokenizingBackend.tokenize`."""
        size = sum(map(len, request.texts))
        if self._waiting and self._waiting + size > MOST_WAITING:
            message = f"{self._waiting} characters wait already to be tokenised, and {MOST_WAITING} may; retry shortly."
            raise InferenceError("QUEUE_FULL", message)
        self._waiting += size
        try:
            async with asyncio.timeout(None if request.deadline is None else request.deadline - clock()):
                return await self._submit(model, request)
        except TimeoutError:
            raise deadline_exceeded() from None
        finally:
            self._waiting -= size

    def _submit(self, model: LoadedModel, request: TokenizeRequest) -> asyncio.Future[Tokens]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Tokens] = loop.create_future()

        def settle(tokens: Tokens, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(tokens)
            else:
                future.set_exception(error)

        def give_up(at_work: bool) -> None:
            if not future.done():
                settle([], given_up(at_work, "tokenisation", request.request_id, model.id, self._give_up_s))
            if not at_work:
                model.use.leave()

        def work() -> None:
            tokens, failure = ([], None) if future.done() else _tokens(model, request)
            model.use.leave()
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, tokens, failure)

        model.use.enter()
        self.pool.submit(work, give_up=give_up)
        return future


def _tokens(model: LoadedModel, request: TokenizeRequest) -> tuple[Tokens, BaseException | None]:
    try:
        return model.adapter.tokenize(request.texts, special=request.special, most=request.most), None
    except NotImplementedError:
        message = (
            f"{model.id} shows no tokens: its family has no tokenizer of whole texts to ask. Use the tokenizer in its "
            "weights' folder, or leave it to the model, which cuts texts itself (`truncate`)."
        )
        return [], InvalidInput(message, param="model")
    except BaseException as error:
        return [], request_error(error, "tokenisation", request.request_id, model.id)
