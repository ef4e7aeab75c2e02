"""The commands of `sie` that this distribution brings. Importing it loads nothing of the kit."""

from __future__ import annotations

from typing import Final

from sie_core.commands import Command

COMMANDS: Final = (
    Command(
        "plugins check", "Run the author's kit on a distribution, a wheel or a folder.", "sie_kit.cli.authors:check"
    ),
    Command("plugins new", "Write a new plugin that works before it is edited.", "sie_kit.cli.authors:new"),
)
