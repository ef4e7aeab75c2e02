"""Calls a plugin's code with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class HungError(Exception):
    """A call did not return in time; the message says so, as the end of a sentence."""


class Calls:
    """Calls of one process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._stuck: dict[str, threading.Thread] = {}
        """Threads that exceeded their limit, by name. While one runs, nothing of that name is called again."""

    def within(self, name: str, limit_s: float, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, or raise what it raises.

        Args:
            name: Name of the call. While a call of this name hangs, further ones raise at once.
            limit_s: Longest duration of the call in seconds.
            call: Runs on its own thread; a hanging call cannot be stopped and is left behind.

        Raises:
            HungError: The call exceeded the limit, or an earlier one still hangs.
        """
        stuck = self._stuck.get(name)
        if stuck is not None and stuck.is_alive():
            raise HungError("does not come back")
        results: list[Result] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, name=f"sie-{name}", daemon=True)
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            self._stuck[name] = thread
            raise HungError(f"did not come back within {limit_s:g} s")
        if errors:
            raise errors.pop()
        return results.pop()
