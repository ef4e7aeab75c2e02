"""The group `sie config`; each of its commands has a module."""

from __future__ import annotations

import click

from sie_cluster.cli.config.restore import restore
from sie_cluster.cli.config.serve import serve


@click.group("config")
def command() -> None:
    """Run the config service, which writes a cluster's model configs, or restore what it wrote."""


command.add_command(serve)
command.add_command(restore)
