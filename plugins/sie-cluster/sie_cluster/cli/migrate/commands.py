"""`sie migrate`: what was written for other releases, as this one has it."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

SCHEMA = "values.schema.json"


@click.group("migrate")
def command() -> None:
    """Bring what was written for other releases to this one."""


@command.command("helm-values")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--chart", type=click.Path(exists=True, path_type=Path), default=Path("helm/sie-cluster"), show_default=True,
    help="The chart `sie-cluster` that the values are for: its folder, or the .tgz of `helm pull`.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON with each key and what becomes of it, for programs.")
def helm_values(file: Path, chart: Path, as_json: bool) -> None:
    """Write a values file of the published chart as this chart reads it, to stdout.

    Each key is taken, renamed or unknown, which is told on stderr; unknown ones are left out. Exits with 1 where one
    is unknown.
    """
    import yaml

    from sie_cluster.cli.migrate.values import put, read_values
    from sie_core.catalog.configs.yaml_text import YamlFault, load_yaml

    try:
        values = load_yaml(file.read_bytes()) or {}
    except (YamlFault, OSError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    if not isinstance(values, dict):
        raise click.ClickException(f"{file}: a values file is a map, not {type(values).__name__}.")
    found = list(read_values(values, _schema(chart)))
    written: dict[str, Any] = {}
    for each in found:
        if each.state != "unknown":
            put(each, written)
    if as_json:
        click.echo(json.dumps({"values": written, "keys": [asdict(each) for each in found]}, indent=2))
    else:
        click.echo(yaml.safe_dump(written, sort_keys=False, allow_unicode=True), nl=False)
        for each in found:
            if each.state != "taken" or each.note:
                to = f" -> {'.'.join(each.to)}" if each.state == "renamed" else ""
                click.echo(f"{each.state:<8} {each.path}{to}{each.note and ': '}{each.note}", err=True)
        counted = Counter(each.state for each in found)
        click.echo(", ".join(f"{counted[state]} {state}" for state in ("taken", "renamed", "unknown")), err=True)
    if any(each.state == "unknown" for each in found):
        click.get_current_context().exit(1)


def _schema(chart: Path) -> dict[str, Any]:
    """Read the schema of a chart's values."""
    try:
        if chart.is_dir():
            text = (chart / SCHEMA).read_bytes()
        else:
            with tarfile.open(chart) as archive:
                member = archive.extractfile(f"sie-cluster/{SCHEMA}")
                text = b"" if member is None else member.read()
        read: dict[str, Any] = json.loads(text)
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        raise click.ClickException(f"{chart}: no chart with a {SCHEMA}: {error}. Name one by --chart.") from None
    return read
