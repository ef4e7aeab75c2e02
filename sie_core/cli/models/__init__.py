"""`sie models`: what the catalog holds, what is pinned, and what a server says of its models."""

from sie_core.cli.models.commands import command as command
