"""The engine's exceptions. Codes, statuses and retry hints are defined in `sie_sdk.errors`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from sie_sdk.errors import ErrorSpec, error_spec


class InferenceError(Exception):
    """A request cannot be answered; `message` is fit for the client: it names the subject, the fault, the value and the
    remedy.

    Args:
        code: A code of the error table.
        message: For the client. Never the text of a foreign exception, never a path. A message about a field begins
            with the field.
        param: The request field at fault, as a path like `items[3].text`.
        retry_after_s: Overrides the table's pause.
        details: Further fields of the error body.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.spec: ErrorSpec = error_spec(code)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s if retry_after_s is not None else self.spec.retry_after_s
        self.details = dict(details or {})

    def about(self, param: str) -> InferenceError:
        """Copy the error with another field name: the one in the client's own body."""
        message = self.message
        if self.param:
            message = re.sub(rf"^(`?){re.escape(self.param)}(?![\w/-])", lambda found: found[1] + param, message)
        return InferenceError(self.code, message, param=param, retry_after_s=self.retry_after_s, details=self.details)


class InvalidInput(InferenceError):
    """The request is wrong in a way only the adapter could see; answers 400."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "INVALID_INPUT") -> None:
        super().__init__(code, message, param=param)


class OutOfDeviceMemory(Exception):
    """The device could not allocate. An adapter raises it from `load` or `run` in place of its library's own error."""


OUT_OF_MEMORY = (OutOfDeviceMemory, MemoryError)
"""The exceptions of failed allocations, on a device or in the process."""


class DeviceLost(Exception):
    """The device fails every call of this process; only a restart helps.

    An adapter raises it from `load`, `run` or `finish` in place of its library's own error. Liveness turns red.
    """


LoadFailure = Literal[
    "GATED", "NOT_FOUND", "DEPENDENCY", "CONFIG", "CORRUPT", "OOM", "NETWORK", "TIMEOUT", "STORAGE", "UNKNOWN"
]
"""Why a load failed. The first five are permanent until the operator acts, and rarely tried; the others cool down."""

PERMANENT_FAILURES: frozenset[LoadFailure] = frozenset({"GATED", "NOT_FOUND", "DEPENDENCY", "CONFIG", "CORRUPT"})


class ModelLoadError(Exception):
    """A model cannot be loaded; the message is fit for the client."""

    def __init__(self, failure: LoadFailure, message: str) -> None:
        super().__init__(message)
        self.failure: LoadFailure = failure

    @property
    def permanent(self) -> bool:
        """Whether trying again is pointless until the operator acts."""
        return self.failure in PERMANENT_FAILURES


class FamilyUnfitError(ModelLoadError):
    """A family cannot serve the weights that it claimed; the message, which an operator reads, says why.

    The engine then asks the next family that claims them. If no other family claims them, or the model's config names
    this one, the load fails with this error, classed `CONFIG`.
    """

    def __init__(self, message: str) -> None:
        super().__init__("CONFIG", message)


class PluginError(Exception):
    """The installed plugins cannot be used together, or a chosen one is missing; stops the start."""


class DeprecatedWarning(FutureWarning):
    """A plugin uses what a later release no longer has. `sie plugins` shows it.

    Args:
        name: What it uses.
        replacement: What to use instead, as an order.
        release: The first release without it, two minor releases after the first that warns.
    """

    def __init__(self, name: str, replacement: str, release: str) -> None:
        super().__init__(f"{name} is deprecated and goes with sie-core {release}: {replacement}")
