"""The group `sie config`; each of its commands has a module."""

from __future__ import annotations

import click

from sie_cluster.cli.config.applying import apply, diff
from sie_cluster.cli.config.exporting import export
from sie_cluster.cli.config.restore import restore
from sie_cluster.cli.config.serve import serve


@click.group("config")
def command() -> None:
    """Run the config service, which keeps a cluster's model configs; apply, export and restore these."""


for each in (serve, diff, apply, export, restore):
    command.add_command(each)
