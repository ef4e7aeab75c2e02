"""`sie config`: the config service."""

from sie_cluster.cli.config.commands import command as command
