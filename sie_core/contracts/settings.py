"""A plugin's own environment variable: declared once, read where it is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PluginSetting:
    """One `SIE_*` variable that a plugin reads, registered by `sie_settings`.

    The core documents it, knows its name, and stops the start if its value is not allowed.
    """

    variable: str
    """Its name: `SIE_`, the plugin's, and what it sets, in capitals."""
    default: str
    """Effective value if it is unset or empty."""
    description: str
    """A sentence for the table of settings."""
    allowed: tuple[str, ...] = ()
    """Its values; empty if any string is one."""

    def value(self, environ: Mapping[str, str] | None = None) -> str:
        """Read it from the environment, or from `environ`.

        Raises:
            ValueError: The value is not allowed; the message names the variable, the value and what is.
        """
        value = (os.environ if environ is None else environ).get(self.variable) or self.default
        if self.allowed and value not in self.allowed:
            raise ValueError(f"{self.variable}={value!r} is none of {', '.join(self.allowed)}. {self.description}")
        return value
