"""A plugin's environment variable: declared once, read where needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True, slots=True)
class PluginSetting:
    """One `SIE_*` variable that a plugin reads, registered by `sie_settings`.

    The core documents it, knows its name, and stops the start if its value is not allowed.
    """

    variable: str
    """Its name: `SIE_`, the plugin, and the setting, in capitals."""
    default: str
    """Effective value if it is unset or empty."""
    description: str
    """A sentence for the table of settings."""
    _: KW_ONLY
    allowed: tuple[str, ...] = ()
    """Its allowed values; empty if any string is allowed."""

    def value(self, environ: Mapping[str, str] | None = None) -> str:
        """Read it from the environment, or from `environ`.

        Raises:
            ValueError: The value is not allowed; the message names the variable, the value and the allowed ones.
        """
        value = (os.environ if environ is None else environ).get(self.variable) or self.default
        if self.allowed and value not in self.allowed:
            raise ValueError(f"{self.variable}={value!r} is none of {', '.join(self.allowed)}. {self.description}")
        return value
