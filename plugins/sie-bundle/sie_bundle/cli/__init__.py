"""`sie bundle`: begins, checks, locks, builds and shows bundles; a module a command."""

from __future__ import annotations

import click

from sie_bundle.cli.build import build
from sie_bundle.cli.checking import check
from sie_bundle.cli.locking import lock
from sie_bundle.cli.showing import list_bundles, show
from sie_bundle.cli.starting import init


@click.group("bundle")
def command() -> None:
    """Begin, check, lock, show and build bundles: what is installed together in one image."""


command.add_command(build)
command.add_command(check)
command.add_command(init)
command.add_command(list_bundles)
command.add_command(lock)
command.add_command(show)
