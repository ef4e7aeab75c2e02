"""Shows the tokens of texts with a loaded model's own tokenizer, on a thread. It must not know the device."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from sie_core.contracts import InvalidInput, Token, TokenizeRequest
from sie_core.engine.loaded import LoadedModel
from sie_core.engine.pool import CpuPool
from sie_core.engine.request_errors import deadline_exceeded, request_error

Tokens = Sequence[Sequence[Token]]

clock = time.monotonic


async def tokenize(pool: CpuPool, model: LoadedModel, request: TokenizeRequest) -> Tokens:
    """Tokenise on a thread of `pool`, unless nobody waits for it any more; see `TokenizingBackend.tokenize`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Tokens] = loop.create_future()

    def settle(tokens: Tokens, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(tokens)
        else:
            future.set_exception(error)

    def work() -> None:
        tokens, failure = ([], None) if future.done() else _tokens(model, request)
        model.use.leave()
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, tokens, failure)

    model.use.enter()
    pool.submit(work)
    try:
        async with asyncio.timeout(None if request.deadline is None else request.deadline - clock()):
            return await future
    except TimeoutError:
        raise deadline_exceeded() from None


def _tokens(model: LoadedModel, request: TokenizeRequest) -> tuple[Tokens, BaseException | None]:
    try:
        return model.adapter.tokenize(request.texts, special=request.special, most=request.most), None
    except NotImplementedError:
        return [], InvalidInput(f"{model.id} shows no tokens: its adapter has no tokenizer to ask.", param="model")
    except BaseException as error:
        return [], request_error(error, "tokenisation", request.request_id, model.id)
