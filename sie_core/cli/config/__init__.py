"""`sie config`: the config service."""

from sie_core.cli.config.commands import command as command
