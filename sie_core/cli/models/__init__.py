"""`sie models`: the catalog's models, pinned weights, and the state of a server's models."""

from sie_core.cli.models.commands import command as command
