"""`sie plugins new` and `sie plugins check`: the author's kit on the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sie_kit.cli.children import LIMIT_S, CannotCheck, Result, as_json, run_checks
from sie_kit.cli.projects import KINDS, CannotMake, make
from sie_kit.cli.wheels import found


class Unchecked(click.ClickException):
    """Nothing was checked; the process exits with 2."""

    exit_code = 2


@click.command("new")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), default="family", show_default=True, help="What it registers.")
@click.option(
    "--into", type=click.Path(path_type=Path), default=Path(), help="The folder to make it in; default: here."
)
def new(name: str, kind: str, into: Path) -> None:
    """Write a new plugin that works before it is edited.

    It is the distribution `sie-NAME`, in a folder of that name.
    """
    try:
        folder = make(name, kind, into)
    except CannotMake as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"{folder} holds a plugin that works. Next:\n    pip install -e {folder}\n    sie plugins check sie-{name}"
    )


@click.command("check")
@click.argument("what", metavar="DIST|FOLDER|WHEEL")
@click.option("--model", "models", multiple=True, help="A model to check it with; may be repeated.")
@click.option("--models-dir", type=click.Path(exists=True, file_okay=False), help="A folder of configs or of weights.")
@click.option("--device", default="cpu", show_default=True, help="Kind of the device.")
@click.option("--queue-url", help="URL of the queue that its queue transports are checked with.")
@click.option("--store-url", help="The object store that its stores may write to.")
@click.option("--repository", help="A repository that its weight tiers have.")
@click.option("--only", multiple=True, metavar="ID", help="Run this check only, by its id; may be repeated.")
@click.option("--limit", "limit_s", default=LIMIT_S, show_default=True, help="Seconds that a check may take.")
@click.option("--json", "in_json", is_flag=True, help="JSON, for programs.")
def check(
    what: str,
    models: tuple[str, ...],
    models_dir: str | None,
    device: str,
    queue_url: str | None,
    store_url: str | None,
    repository: str | None,
    only: tuple[str, ...],
    limit_s: float,
    in_json: bool,
) -> None:
    """Run the author's kit on a distribution, a wheel or a folder.

    A distribution is an installed one; the wheel of a folder is built first.

    The checks run in a process of their own, which a plugin may hang or end. Exits with 0 if none failed, with 1 if one
    did, and with 2 if nothing could be checked.
    """
    arguments: dict[str, Any] = {"models": list(models) or None, "models_dir": models_dir, "device": device}
    arguments |= {"queue_url": queue_url, "store_url": store_url, "repository": repository}
    results: list[Result] = []
    try:
        with found(what) as (distribution, site):
            for result in run_checks(distribution, arguments, site, limit_s=limit_s, only=only):
                results.append(result)
                if not in_json:
                    _print(result)
    except CannotCheck as error:
        raise Unchecked(str(error)) from None
    if not results:
        raise Unchecked(
            f"no check of {what} has one of the ids {', '.join(only)}; docs/extend/reference/kit.md lists them"
        )
    failed = sum(result.state == "failed" for result in results)
    skipped = sum(result.state == "skipped" for result in results)
    click.echo(
        as_json(results) if in_json else f"{len(results) - failed - skipped} passed, {skipped} skipped, {failed} failed"
    )
    sys.exit(1 if failed else 0)


def _print(result: Result) -> None:
    click.echo(f"{result.state:<8}{result.part}: {result.name} ({result.seconds:.1f} s)")
    if result.cause:
        click.echo(f"        {result.cause}\n" + (f"        {result.id}" if result.state == "failed" else ""))
