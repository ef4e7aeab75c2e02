"""The command `sie cluster`."""

from sie_cluster.cli.cluster.commands import command

__all__ = ["command"]
