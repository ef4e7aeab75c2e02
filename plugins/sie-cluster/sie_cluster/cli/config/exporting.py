"""`sie config export`: what the config service was told, as a folder of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from sie_cluster.cli.config.applying import Comparing, config_service, of_service
from sie_core.cli.composition.compose import read_settings


@click.command("export", cls=Comparing)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@of_service
def export(folder: Path, as_json: bool, **options: Any) -> None:
    """Write the configs that the service was told into DIR, a file each, for `sie config apply`.

    DIR is made, or empty. Models of the service's image are left out. It needs `SIE_CONFIG_SERVICE_URL` and
    `SIE_CONFIG_READ_TOKEN`.
    """
    import json

    from sie_cluster.settings import ClusterSettings

    settings = read_settings(ClusterSettings, **options)
    with config_service(settings) as service:
        told = service.ask("GET", "/v1/configs/export")
    written: dict[str, str] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise click.ClickException(f"{folder} is not empty: name a new folder, or remove what is in it.")
        for model in told["models"]:
            if model["source"] != "api":
                continue
            name = model["model_id"].replace("/", "__")
            name = quote(model["model_id"], safe="") if name in written.values() else name
            (folder / f"{name}.yaml").write_text(model["raw_yaml"], encoding="utf-8")
            written[model["model_id"]] = name
    except OSError as error:
        raise click.ClickException(f"{folder}: cannot be written: {error.strerror}.") from None
    files = {model_id: f"{name}.yaml" for model_id, name in written.items()}
    click.echo(json.dumps({"epoch": told["epoch"], "files": files}, indent=2) if as_json else f"{len(files)} models")
