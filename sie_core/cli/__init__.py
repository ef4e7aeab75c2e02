"""The command `sie`: the composition root, a file or folder a command, each imported when it is called.

Importing this package loads click and nothing of the engine.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any, Final

import click

from sie_core import __version__
from sie_core.commands import Command, find_commands

COMMANDS: Final = (
    Command("cache", "List, pull, verify and remove the weights of the local cache.", "sie_core.cli.cache:command"),
    Command(
        "models", "List the models of the catalog and say which family serves each.", "sie_core.cli.models:command"
    ),
    Command(
        "plugins",
        "List the installed plugins, what they register and why one is broken or fails.",
        "sie_core.cli.plugins:command",
    ),
    Command("serve", "Serve models over HTTP.", "sie_core.cli.serve:command"),
    Command(
        "status",
        "Show a running server at work: its rate, the time of each stage, memory, models and errors.",
        "sie_core.cli.status:command",
    ),
    Command(
        "verify", "Compare what the engine returns for MODEL with a reference library.", "sie_core.cli.verify:command"
    ),
)
BROUGHT_BY: Final = {
    "bundle": "sie-bundle",
    "cluster": "sie-cluster",
    "config": "sie-cluster",
    "gateway": "sie-cluster",
    "plugins check": "sie-kit",
    "plugins new": "sie-kit",
    "sidecar": "sie-cluster",
    "worker": "sie-cluster",
}
"""Commands of distributions of this project, by the distribution, which may not be installed."""


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is called, not to list it."""

    def __init__(self, *arguments: Any, below: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._below = below
        """The words of its commands before their last one, each with a space."""

    @cached_property
    def found(self) -> dict[str, Command]:
        """Its commands by their last word, those of the core and of other distributions."""
        named = ((name.rpartition(" "), command) for name, command in find_commands(COMMANDS).items())
        return {last: command for (words, space, last), command in named if words + space == self._below}

    def list_commands(self, context: click.Context) -> list[str]:
        """List every command by name."""
        return sorted(self.found)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the command `name`; for an unknown one, say what brings it, or name the nearest."""
        if name not in self.found:
            raise click.UsageError(f"No such command '{name}'.{self._hint(name)}")
        module, _, attribute = self.found[name].target.partition(":")
        try:
            command: Any = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise click.ClickException(
                f"`sie {self._below}{name}` cannot be run: {error}. Install its distribution again."
            ) from error
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{self.found[name].target} is no click.Command; its distribution is broken.")
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        if self.found:
            with formatter.section("Commands"):
                formatter.write_dl([(name, self.found[name].help) for name in sorted(self.found)])

    def _hint(self, name: str) -> str:
        if (whole := self._below + name) in BROUGHT_BY:
            return f" `pip install {BROUGHT_BY[whole]}` brings it."
        from difflib import get_close_matches  # only a mistake needs it

        near = get_close_matches(name, self.found, 1)
        return f" Did you mean `sie {self._below}{near[0]}`?" if near else ""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sie", message="%(prog)s %(version)s")
def main() -> None:
    """SIE, an inference engine for the small models behind search and agents.

    Every setting is an environment variable `SIE_…`; an option of a command wins over it.
    """
