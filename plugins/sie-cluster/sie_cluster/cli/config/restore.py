"""`sie config restore`: a backup, or an export, into the broker's journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sie_core.cli.composition.compose import LEVELS
from sie_core.cli.composition.program import program


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("--store", "config_store_dir", help="Where the backup is, without FILE: a folder, or s3://…")
@click.option("--replace", is_flag=True, help="Also remove and replace models that differ from the backup.")
@click.option("-l", "--log-level", type=LEVELS, help="Least level logged.")
def restore(file: Path | None, replace: bool, **options: Any) -> None:
    """Put a backup of the model configs into the broker.

    FILE is a backup (`configs.json` of the store) or an answer of `GET /v1/configs/export`; without it, the backup of
    the store is read. Models that were changed since are left as they are, unless `--replace` is given. Services that
    run follow within seconds. If users have permissions, run it as the user of the config service.
    """
    from sie_cluster.config_service.store.records import StoreDamaged
    from sie_cluster.settings import ClusterSettings

    with program(StoreDamaged, model=ClusterSettings, **options) as (settings, plugins):
        import asyncio

        from sie_cluster.config_service.store.backups import BackupStore
        from sie_cluster.config_service.store.logs import JournalLog
        from sie_cluster.config_service.store.reading import read_file
        from sie_cluster.config_service.store.restoring import restore as put_back
        from sie_cluster.config_service.store.state import State
        from sie_cluster.queue.broker import transport_maker
        from sie_core.concurrency.threads import on_thread
        from sie_core.plugins.object_stores import open_store_or_folder

        if file is not None:
            backup = read_file(file)
        else:
            place = str(settings.config_store_dir)
            store = BackupStore(open_store_or_folder("SIE_CONFIG_STORE_DIR", place, plugins.object_stores))
            found = store.read()
            if found is None:
                raise click.ClickException(f"{store.url} is not there: name a file, or another store by --store.")
            backup = found

        async def run() -> State:
            transport = transport_maker(settings, plugins)()
            await transport.open()
            try:
                journal = JournalLog(lambda: transport, asyncio.get_running_loop())
                await on_thread("sie-config-open", lambda: journal.open(first=backup.epoch + 1))
                return await on_thread("sie-config-restore", lambda: put_back(journal, backup, replace=replace))
            finally:
                await transport.close()

        state = asyncio.run(run())
        click.echo(f"{len(state.models)} models at epoch {state.epoch}; the backup is of epoch {backup.epoch}.")
