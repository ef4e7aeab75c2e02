"""`sie plugins`: what is installed, a new plugin from a template, and the author's kit without pytest."""

from sie_core.cli.plugins.authors import check, new
from sie_core.cli.plugins.listing import command

command.add_command(new)
command.add_command(check)

__all__ = ["command"]
