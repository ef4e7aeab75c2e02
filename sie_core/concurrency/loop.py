"""Calls from a thread onto an event loop that may be closed at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: Any) -> bool:
    """Have `loop` make a call, from any thread; False if the loop is closed and the call is never made.

    Asking `is_closed` first is no help: the loop may be closed between the question and the call.
    """
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return False
    return True
