"""`sie cluster SCHEME-conf`: writes the configuration of a broker, with a user for each role of a cluster."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sie_core.cli.composition.compose import find_plugins, read_settings

if TYPE_CHECKING:
    from sie_core.contracts import BrokerPlan

NAME = r"[A-Za-z0-9_\-]+"


def broker_commands() -> dict[str, click.Command]:
    """Make a command for each URL scheme whose plugin writes configurations; none if plugins cannot be found."""
    with suppress(click.ClickException):
        transports = find_plugins(read_settings()).queue_transports
        return {
            f"{scheme}-conf": _command(scheme, factory.configure)
            for scheme, factory in transports.items()
            if factory.configure is not None
        }
    return {}


def _command(scheme: str, configure: Callable[[BrokerPlan], str]) -> click.Command:
    @click.command(f"{scheme}-conf", short_help=f"Write the configuration of a broker for {scheme}:// URLs.")
    @click.option("--gateway", "gateways", multiple=True, metavar="NAME", help="A gateway with a user of its own.")
    @click.option(
        "--worker", "workers", multiple=True, metavar="NAME[@POOL]", help="A worker with a user of its own; its id."
    )
    @click.option("--pool", help="Queue pool of workers that name none.")
    @click.option("--host", default="0.0.0.0", show_default=True, help="Address the broker listens on.")
    @click.option("-p", "--port", type=click.IntRange(1, 65535), default=4222, show_default=True, help="Its port.")
    @click.option(
        "--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("broker"), show_default=True,
        help="Where the broker keeps its files.",
    )  # fmt: skip
    @click.option(
        "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
        help="File to write, readable by its owner alone: it holds the passwords.",
    )  # fmt: skip
    def command(
        gateways: tuple[str, ...],
        workers: tuple[str, ...],
        pool: str | None,
        host: str,
        port: int,
        folder: Path,
        out: Path,
    ) -> None:
        """Write the configuration of a broker with a user for each role, limited to its part.

        A gateway publishes work and reads its own inbox. A worker pulls from its pool, answers gateways and reports its
        state. Only the config service announces changes and creates the queues, as `sie cluster queues` does with its
        user. Passwords are random; the file names them.
        """
        import re

        from sie_cluster.queue.access import accesses
        from sie_core.contracts import BrokerPlan

        pool = read_settings(pool=pool).pool
        pools = {name: of or pool for name, _, of in (each.partition("@") for each in workers)}
        for each in (*gateways, *pools, *pools.values()):
            if not re.fullmatch(NAME, each):
                raise click.UsageError(f"{each!r} is no name of letters, digits, '_' and '-'.")
        users = accesses(pool, gateways, pools)
        passwords = {user.user: secrets.token_urlsafe(24) for user in users}
        plan = BrokerPlan(tuple(users), passwords, host, port=port, folder=folder.absolute())
        out.touch(mode=0o600)
        out.chmod(0o600)
        out.write_text(configure(plan))
        click.echo(f"{out}: {', '.join(passwords)}")

    return command
