"""`sie bundle init`: begins a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from sie_bundle.bundles.names import DEFAULT_PRIORITY
from sie_bundle.cli.opening import told
from sie_bundle.starting import begin_bundle


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--plugin", "plugins", multiple=True, required=True, help="A plugin; may be repeated.")
@click.option("--model", "models", multiple=True, help="A model by its id; may be repeated.")
@click.option("--priority", type=int, default=DEFAULT_PRIORITY - 20, show_default=True)
def init(folder: Path, plugins: tuple[str, ...], models: tuple[str, ...], priority: int) -> None:
    """Write bundle.yaml into FOLDER, whose name is the bundle's."""
    with told():
        file = begin_bundle(folder, plugins, models, priority)
    where = folder if folder.is_absolute() or str(folder).startswith(".") else f"./{folder}"
    click.echo(f"{file}: written. Next: sie bundle check {where}, then sie bundle lock {where}")
