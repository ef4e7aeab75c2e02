"""Runs one long, rare call on a thread of its own and awaits it. It must not know what the call does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def on_thread(name: str, call: Callable[[], Result]) -> Result:
    """Return what `call` returns, or raise what it raises.

    The thread is a daemon: a download that hangs cannot keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, done)

    threading.Thread(target=work, name=name, daemon=True).start()
    await done
    if errors:
        raise errors.pop()
    return results.pop()


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
