"""The command of `sie` that this distribution brings. Importing it loads nothing of the rest."""

from __future__ import annotations

from typing import Final

from sie_core.commands import Command

COMMANDS: Final = (
    Command(
        "bundle",
        "Begin, check, lock, show and build bundles: what is installed together in one image.",
        "sie_bundle.cli:command",
    ),
)
