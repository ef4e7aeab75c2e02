"""Commands of `sie` that distributions bring, found without importing what they run.

A distribution lists them in a module that imports nothing heavy, and names the list by an entry point of the group
`sie.commands`:

    [project.entry-points."sie.commands"]
    cluster = "sie_cluster.commands:COMMANDS"
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

log = logging.getLogger(__name__)

GROUP: Final = "sie.commands"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `sie`."""

    name: str
    """Its word after `sie`; or two, `plugins WORD`, for a command below `sie plugins`."""
    help: str
    """Its line in `sie --help`, a sentence."""
    target: str
    """`"module:name"` of its `click.Command`, imported when it is called."""


def find_commands(own: Iterable[Command] = ()) -> dict[str, Command]:
    """Find the commands of all installed distributions, by name.

    Args:
        own: Commands that no other may replace.

    A list that cannot be read, and a command whose name is taken, are logged and left out.
    """
    found = {each.name: each for each in own}
    for entry_point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            brought = tuple(entry_point.load())
            if strange := [each for each in brought if not isinstance(each, Command) or not isinstance(each.help, str)]:
                raise TypeError(f"{strange[0]!r} is no Command with a line of help")
        except Exception as error:
            log.warning("The commands of %s cannot be read (%s); they are left out", entry_point.value, error)
            continue
        for each in brought:
            if (taken := found.setdefault(each.name, each)) is not each:
                told = "%s brings the command %r, which %s has; it is left out"
                log.warning(told, entry_point.value, each.name, taken.target)
    return found
