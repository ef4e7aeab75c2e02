"""Asks a loaded model's own tokenizer, on a thread of its own, for the tokens of texts and the texts of tokens.

It must not know the device.

Beside the threads that prepare requests: showing tokens makes an object of each, so that a few clients that ask for
them would hold up everybody's requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sie_core.concurrency.loop import call_soon
from sie_core.concurrency.pool import CpuPool, Work
from sie_core.contracts import DecodeRequest, InferenceError, InvalidInput, Token, TokenizeRequest
from sie_core.engine.models.lease import Lease
from sie_core.engine.models.loaded import LoadedModel
from sie_core.engine.requests.errors import deadline_exceeded, given_up, request_error, unavailable

Tokens = Sequence[Sequence[Token]]
Request = TokenizeRequest | DecodeRequest
Answer = TypeVar("Answer")

MOST_WAITING: Final = 2**24
"""Characters and tokens that wait for the thread or are on it; a lone request may have more."""

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
        self._asked: set[asyncio.Future[Any]] = set()

    def start(self) -> None:
        """Start the thread."""
        self.pool.start()

    def close(self, timeout_s: float) -> bool:
        """Join the thread; False where it was still at work after `timeout_s`."""
        return self.pool.close(timeout_s)

    def fail_all(self, why: str) -> None:
        """Answer everybody who waits with `QUEUE_UNAVAILABLE`."""
        for future in self._asked:
            if not future.done():
                future.set_exception(unavailable(why))

    async def tokens(self, model: LoadedModel, request: TokenizeRequest) -> Tokens:
        """List them, unless nobody waits for them any more; see `TokenizingBackend.tokenize`."""

        def list_tokens() -> Tokens:
            return model.adapter.tokenize(request.texts, special=request.special, most=request.most)

        return await self._ask(model, request, sum(map(len, request.texts)), list_tokens)

    async def texts(self, model: LoadedModel, request: DecodeRequest) -> Sequence[str]:
        """Write them, unless nobody waits for them any more; see `DecodingBackend.decode`."""

        def write_texts() -> Sequence[str]:
            return model.adapter.decode(request.ids, special=request.special)

        return await self._ask(model, request, sum(map(len, request.ids)), write_texts)

    async def _ask(self, model: LoadedModel, request: Request, size: int, ask: Callable[[], Answer]) -> Answer:
        if self._waiting and self._waiting + size > MOST_WAITING:
            message = f"{self._waiting} characters wait already for tokenizers, and {MOST_WAITING} may; retry shortly."
            raise InferenceError("QUEUE_FULL", message)
        self._waiting += size
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        timer = _deadline(request, future)
        self._asked.add(future)
        lease = model.leases.acquire()
        work = self._submit(model, request, ask, future, lease)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            if self.pool.remove(work):
                lease.release()
            self._asked.discard(future)
            self._waiting -= size
            del future, work  # an error in them and this frame would hold each other

    def _submit(
        self,
        model: LoadedModel,
        request: Request,
        ask: Callable[[], Answer],
        future: asyncio.Future[Answer],
        lease: Lease,
    ) -> Work:
        loop = future.get_loop()

        def give_up(at_work: bool) -> None:
            if not future.done():
                error = given_up(at_work, "tokenisation", request.request_id, model.id, self._give_up_s)
                future.set_exception(error)
            if not at_work:
                lease.release()

        def work() -> None:
            answers: list[Answer] = []
            failure = None if future.done() else _try(ask, answers, model, request)
            lease.release()
            call_soon(loop, _settle, future, answers, failure)

        return self.pool.submit(work, give_up=give_up)


def _deadline(request: Request, future: asyncio.Future[Answer]) -> asyncio.TimerHandle | None:
    if request.deadline is None:
        return None
    left = max(0.0, request.deadline - clock())
    return future.get_loop().call_later(left, lambda: _settle(future, [], deadline_exceeded()))


def _settle(future: asyncio.Future[Answer], answers: list[Answer], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answers.pop())
    else:
        future.set_exception(error)


def _try(
    ask: Callable[[], Answer], answers: list[Answer], model: LoadedModel, request: Request
) -> BaseException | None:
    """Put the adapter's answer into `answers`; return why there is none."""
    try:
        answers.append(ask())
    except NotImplementedError:
        return InvalidInput(f"{model.id} {_LACKS[type(request)]}", param="model")
    except BaseException as error:
        return request_error(error, "tokenisation", request.request_id, model.id)
    return None


_LACKS: Final[dict[type[Request], str]] = {
    TokenizeRequest: "shows no tokens: its family has no tokenizer of whole texts to ask. Use the tokenizer in its "
    "weights' folder, or leave it to the model, which cuts texts itself (`truncate`).",
    DecodeRequest: "makes no texts of tokens: its family has no tokenizer to ask for them. Use the tokenizer in its "
    "weights' folder.",
}
"""What a model says whose adapter has no answer."""
