"""The group `sie config`; each of its commands has a module."""

from __future__ import annotations

import click

from sie_cluster.cli.config.serve import serve


@click.group("config")
def command() -> None:
    """Run the config service, the one writer of a cluster's model configs."""


command.add_command(serve)
