"""The command `sie cluster`."""

from sie_core.cli.cluster.commands import command

__all__ = ["command"]
