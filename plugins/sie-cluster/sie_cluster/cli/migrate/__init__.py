"""The command `sie migrate`."""

from sie_cluster.cli.migrate.commands import command as command
