"""`sie cache`: what is on the disk, what is pulled, checked and removed."""

from sie_core.cli.cache.commands import command as command
