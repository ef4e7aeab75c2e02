"""The errors of the config service, by a code of the table.

Published tools read a name in lower case, as `error` of the details: the code's own, unless one is given here.
"""

from __future__ import annotations

from typing import Any

from sie_core.contracts import InferenceError


def refusal(code: str, message: str, *, param: str | None = None, **details: Any) -> InferenceError:
    """Make the error of a request.

    Args:
        code: Of the error table.
        message: For the client.
        param: The field at fault.
        details: Further fields of the error body; `error` is a name other than the code's.
    """
    return InferenceError(code, message, param=param, details=details)


def validation_error(problems: list[tuple[str, str]]) -> InferenceError:
    """Make the error of a config whose fields are wrong.

    Args:
        problems: The path and the message of each; there is one at least.
    """
    details = [{**({"loc": loc} if loc else {}), "message": message} for loc, message in problems]
    first = problems[0][0] or None
    message = "; ".join(message for _, message in problems[:10])
    return refusal("VALIDATION_ERROR", message, param=first, details=details)


def not_read(name: str, problem: str) -> InferenceError:
    """Make the error of a service that has not read what was written."""
    told = f"{name} has not read all that was written: {problem}. Nothing changed."
    return InferenceError("CONFIG_STORE_UNAVAILABLE", told)


def store_failed() -> InferenceError:
    """Make the error of a write that the store did not answer for."""
    told = "The config store failed; whether the write counts is open. Send it again, with the same key."
    return InferenceError("CONFIG_STORE_UNAVAILABLE", told)


def not_kept(why: str) -> InferenceError:
    """Make the error of a write that surely does not count."""
    told = f"The config store did not take the write: {why}. Nothing changed; send it again."
    return InferenceError("CONFIG_STORE_UNAVAILABLE", told)
