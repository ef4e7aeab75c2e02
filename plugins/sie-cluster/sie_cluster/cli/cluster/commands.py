"""`sie cluster`: broker, gateway and workers on this machine, run by one command; and configurations of brokers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sie_cluster.cli.cluster.brokers import broker_commands
from sie_core.cli.composition.compose import LEVELS
from sie_core.cli.composition.program import program

HOME_AND_CLEAR = "\x1b[H\x1b[J"


class ClusterGroup(click.Group):
    """The commands of this module, and one for each broker that an installed plugin can configure."""

    def list_commands(self, context: click.Context) -> list[str]:
        """List every command by name."""
        return sorted([*self.commands, *broker_commands()])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Find a command."""
        return self.commands.get(name) or broker_commands().get(name)


@click.group("cluster", cls=ClusterGroup)
def command() -> None:
    """Run a whole cluster on this machine, or write the configuration of its broker."""


@command.command("queues")
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="A queue pool; unset: SIE_POOL.")
def queues(pools: tuple[str, ...]) -> None:
    """Create the queues and stores at the broker of SIE_NATS_URL, or update them to this release.

    If users have permissions, run it as the user of the config service: gateways and workers may not create queues.
    """
    from sie_cluster.settings import ClusterSettings

    with program(model=ClusterSettings) as (settings, plugins):
        import asyncio

        from sie_cluster.queue.access import STORES
        from sie_cluster.queue.access import queues as queues_of
        from sie_cluster.queue.broker import declare_queues, transport_maker

        described = queues_of(pools or (settings.pool,))
        asyncio.run(declare_queues(transport_maker(settings, plugins), described, STORES))
    click.echo("\n".join((*(queue.name for queue in described), *STORES)))


@command.command("dead-letters")
@click.option("--pool", help="Their queue pool; unset: SIE_POOL.")
@click.option("-n", "--most", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many, at most.")
@click.option("--remove", is_flag=True, help="Remove those that are shown.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with the texts of the slice.")
def dead_letters(most: int, remove: bool, as_json: bool, **options: Any) -> None:
    """Show requests that were refused because workers ended at them.

    If users have permissions, run it as the user of the config service.
    """
    from sie_cluster.settings import ClusterSettings

    with program(model=ClusterSettings, **options) as (settings, plugins):
        import asyncio
        import json

        from sie_cluster.queue.broker import transport_maker
        from sie_cluster.queue.dead_letters import DeadLetter, read_dead

        def show(letter: DeadLetter) -> None:
            told = f"{letter.request_id}  {letter.model}  slice {letter.slice}, {len(letter.texts)} items  {letter.why}"
            click.echo(json.dumps(letter._asdict(), ensure_ascii=False) if as_json else told)

        async def read() -> None:
            transport = transport_maker(settings, plugins)()
            await transport.open()
            try:
                if not await read_dead(transport, settings.pool, most, show, remove=remove):
                    click.echo(f"Queue pool {settings.pool} has no dead letters.", err=True)
            finally:
                await transport.close()

        asyncio.run(read())


@command.command("up")
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(0, 64),
    default=1,
    show_default=True,
    help="How many workers of each bundle; 0: one of each is started by hand, with a file of the folder.",
)
@click.option(
    "--brokers",
    type=click.Choice(["1", "3", "5"]),
    default="1",
    show_default=True,
    help="How many brokers; of several, fewer than half may end and nothing is lost.",
)
@click.option("--bundles", help="Comma-separated bundles that have workers; unset: one that serves all models.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("sie-cluster"),
    show_default=True,
    help="Where logs, sockets, the broker's files and what the config service is told go.",
)
@click.option("--host", "http_host", help="Address the gateway listens on.")
@click.option("-p", "--port", "http_port", type=click.IntRange(0, 65535), help="Its port; 0 takes a free one.")
@click.option(
    "--config-port", type=click.IntRange(0, 65535), default=0, help="Port of the config service; 0 takes a free one."
)
@click.option("-d", "--device", help="auto, cuda, cuda:0, mps or cpu.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Folder of model configs and weights.")
@click.option("-m", "--models", "model_filter", help="Comma-separated ids of the models to serve; unset: all.")
@click.option("--preload", "preload_models", help="Comma-separated ids of models every worker loads at its start.")
@click.option("--drain-timeout", "drain_timeout_s", type=float, help="Seconds for requests in flight at the end.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged, to the folder.")
@click.option("--table/--no-table", default=None, help="Show the processes, live; unset: where stdout is a terminal.")
def up(
    workers: int, brokers: str, bundles: str | None, folder: Path, config_port: int, table: bool | None, **options: Any
) -> None:
    """Run broker, config service, gateway and workers until Ctrl-C; processes that end are restarted."""
    if isinstance(options["models_dir"], Path) and "://" not in str(options["models_dir"]):
        options["models_dir"] = options["models_dir"].resolve()
    from sie_cluster.local.programs import BY_HAND, OPERATOR_FILE, TOKEN_FILE
    from sie_cluster.local.up import run_cluster
    from sie_cluster.settings import ClusterSettings

    shown = sys.stdout.isatty() if table is None else table
    names = [name.strip() for name in (bundles or "").split(",") if name.strip()]

    def ready(url: str, config_url: str) -> None:
        with (folder / OPERATOR_FILE).open("a") as file:
            file.write(f"export SIE_GATEWAY_URL={url} SIE_CONFIG_SERVICE_URL={config_url}\n")
        of_each = f" of each of {', '.join(names)}" if len(names) > 1 else ""
        click.echo(f"SIE serves on {url} with {workers} worker{'' if workers == 1 else 's'}{of_each}; logs in {folder}")
        if not workers:
            click.echo(f"Start one with: . {folder / 'worker-1'}{BY_HAND} && sie worker --with-sidecar")
        click.echo(f"Model configs are changed at {config_url}/v1/configs; the token is in {folder / TOKEN_FILE}")

    def show(lines: list[str]) -> None:
        click.echo("\n".join([HOME_AND_CLEAR + f"SIE, logs in {folder}; Ctrl-C ends it", "", *lines]))

    with program(model=ClusterSettings, **options) as (settings, plugins):
        screen = show if shown else None
        run_cluster(
            settings,
            plugins,
            folder,
            workers,
            ready,
            screen,
            bundles=names,
            config_port=config_port,
            brokers=int(brokers),
        )
