"""The command `sie doctor`."""

from sie_cluster.cli.doctor.commands import command as command
