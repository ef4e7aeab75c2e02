"""The command `sie`: the composition root, a file or folder a command, each imported when it is called.

Importing this package loads click and nothing of the engine.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

import click

from sie_core import __version__

COMMANDS = {
    "bundle": "Begin, check, lock, show and build bundles: what is installed together in one image.",
    "cache": "List, pull, verify and remove the weights of the local cache.",
    "cluster": "Run a whole cluster on this machine, or write the configuration of its broker.",
    "config": "Run the config service, the one writer of a cluster's model configs.",
    "gateway": "Serve the HTTP API over a queue; workers run the models.",
    "models": "List the models of the catalog and say which family serves each.",
    "plugins": "List the installed plugins, what they register and why one is broken or fails.",
    "serve": "Serve models over HTTP.",
    "sidecar": "Pull work from the queue, have the adapter process on this machine do it, and answer.",
    "verify": "Compare what the engine returns for MODEL with a reference library.",
    "worker": "Run models for the sidecar on this machine, which pulls their work from the queue.",
}
"""Command to its line in the help. The module or package `sie_core.cli.<name>` holds it as `command`."""


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is called, not to list it."""

    def list_commands(self, context: click.Context) -> list[str]:
        """List every command by name."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the command `name`; for an unknown one, raise an error with the nearest name."""
        if name not in COMMANDS:
            near = get_close_matches(name, COMMANDS, 1)
            raise click.UsageError(f"No such command '{name}'." + (f" Did you mean `sie {near[0]}`?" if near else ""))
        command = import_module(f"sie_core.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sie", message="%(prog)s %(version)s")
def main() -> None:
    """SIE, an inference engine for the small models behind search and agents.

    Every setting is an environment variable `SIE_…`; an option of a command wins over it.
    """
