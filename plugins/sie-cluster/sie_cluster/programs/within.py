"""Waits for something, and no longer than a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def within(awaitable: Awaitable[object], most_s: float) -> bool:
    """Wait for something; False after `most_s` seconds."""
    try:
        async with asyncio.timeout(most_s):
            await awaitable
    except TimeoutError:
        return False
    return True
