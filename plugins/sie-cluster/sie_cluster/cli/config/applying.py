"""`sie config diff`, `sie config apply`: a folder of model configs, as in git, and what the config service holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sie_core.cli.composition.compose import read_settings

if TYPE_CHECKING:
    from sie_cluster.cli.config.changes import Change, Comparison
    from sie_cluster.cli.config.folder import Folder, Problem
    from sie_cluster.cli.services import Service
    from sie_cluster.settings import ClusterSettings

SAME, WRONG, DIFFERENT = 0, 1, 2
FEW = 5
"""Models of a worker that lags that are named; JSON has all."""
F = TypeVar("F", bound=Callable[..., Any])
SIGNS = {"create": "+", "change": "~", "replace": "~", "remove": "-", "keep": "?", "refuse": "!"}


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a time: `90`, `90s` or `2m`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m)?", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is no time; write 90, 90s or 2m.", ctx, param)
    return float(match[1]) * (60 if match[2] == "m" else 1)


class Comparing(click.Command):
    """A command whose wrong arguments exit with 1, as other errors do: 2 says that there are differences."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments."""
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            error.show()
            raise click.exceptions.Exit(WRONG) from None


def of_service(command: F) -> F:
    """Add the options that name the config service, and JSON."""
    command = click.option("--service", "config_service_url", help="URL of the config service.")(command)
    return click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")(command)


def _of_folder(command: F) -> F:
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    command = click.argument("folder", metavar="DIR", type=folder)(command)
    command = click.option("--prune", is_flag=True, help="Remove models that DIR does not have.")(command)
    help_ = "Replace models that are served with other content, where they are refused otherwise."
    return of_service(click.option("--replace", is_flag=True, help=help_)(command))


@click.command("diff", cls=Comparing)
@_of_folder
def diff(folder: Path, replace: bool, prune: bool, as_json: bool, **options: Any) -> None:
    """Show what `sie config apply` would change with the same options; nothing is written.

    The service checks each config, so that what is refused is told with its file and line. It needs
    `SIE_CONFIG_SERVICE_URL` and `SIE_CONFIG_READ_TOKEN`. Exits with 0 where nothing would change, 2 where something
    would, 1 where a config is refused or the service gives no answer.
    """
    _run(folder, replace, prune, as_json, None, options)


@click.command("apply", cls=Comparing)
@_of_folder
@click.option(
    "--wait", "wait_s", callback=_seconds, default="120s", show_default=True, metavar="TIME",
    help="How long to wait for workers to have them; 0: not at all.",
)  # fmt: skip
@click.option("--gateway", "gateway_url", help="URL of the gateway that says which workers have the configs.")
@click.option("--dry-run", is_flag=True, help="As `sie config diff`.")
def apply(
    folder: Path, replace: bool, prune: bool, as_json: bool, wait_s: float, dry_run: bool, **options: Any
) -> None:
    """Write a folder of model configs to the config service, and wait until workers have them.

    Models and profiles are added; one that is served with other content is refused unless `--replace` is given. All
    configs are checked first, and if one is refused nothing is written. A second run writes nothing, one after an
    interruption the rest; both wait. It needs `SIE_CONFIG_SERVICE_URL` and `SIE_ADMIN_TOKEN`, and to wait
    `SIE_GATEWAY_URL` and `SIE_AUTH_TOKEN`. Exits with 0, with 2 where workers lag, with 1 where a config is refused or
    a service gives no answer.
    """
    _run(folder, replace, prune, as_json, None if dry_run else wait_s, options)


def _run(folder: Path, replace: bool, prune: bool, as_json: bool, wait_s: float | None, options: Any) -> None:
    from sie_cluster.cli.config.changes import Comparison
    from sie_cluster.cli.config.folder import read_folder
    from sie_cluster.settings import ClusterSettings

    settings, report = read_settings(ClusterSettings, **options), _Report(as_json)
    read = read_folder(folder)
    try:
        with config_service(settings) as service:
            comparison = Comparison(service, read, replace, prune, report.problems)
            report.problems += read.problems
            planned = list(comparison.changes())
            if wait_s is None or report.problems:
                report.changes = planned
            else:
                _write(comparison, planned, report)
        if wait_s and not report.problems:
            _wait(settings, read, report, wait_s)
    except click.ClickException as error:
        report.error = error.message
    report.show()
    click.get_current_context().exit(report.status())


def config_service(settings: ClusterSettings) -> Service:
    """Make a client of the config service, with the token that may do most."""
    from sie_cluster.cli.services import Service

    tokens = settings.admin_token, settings.config_read_token
    told = "SIE_CONFIG_READ_TOKEN" if settings.admin_token is None else "SIE_ADMIN_TOKEN"
    return Service("SIE_CONFIG_SERVICE_URL", settings.config_service_url, *tokens, token_variable=told)


def _write(comparison: Comparison, planned: list[Change], report: _Report) -> None:
    report.written = True
    for each in planned:
        if not each.writes:
            report.changes.append(each)
        elif each.action == "remove":
            report.changes.append(comparison.remove(each.id))
        else:
            known = each.action != "create"
            report.changes.append(comparison.write(comparison.folder.models[each.id], known))


def _wait(settings: ClusterSettings, folder: Folder, report: _Report, wait_s: float) -> None:
    from sie_cluster.cli.config.waiting import wait_for_workers
    from sie_cluster.cli.services import Service

    if settings.gateway_url is None:
        report.note = "Nobody waited for workers: SIE_GATEWAY_URL names no gateway."
        return
    with Service("SIE_GATEWAY_URL", settings.gateway_url, settings.auth_token, token_variable="SIE_AUTH_TOKEN") as told:
        epoch = max(each.epoch for each in report.changes)
        report.lagging = wait_for_workers(told, [*folder.models], epoch, wait_s)


class _Report:
    """What a run did, as text or as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.changes: list[Change] = []
        self.problems: list[Problem] = []
        self.lagging: Mapping[str, list[str]] = {}
        self.error = self.note = ""
        self.written = False
        """Whether `changes` were made; otherwise they would be."""
        self._as_json = as_json

    def status(self) -> int:
        """Give the exit status."""
        if self.error or self.problems:
            return WRONG
        differs = self.lagging or (not self.written and any(each.writes for each in self.changes))
        return DIFFERENT if differs else SAME

    def show(self) -> None:
        """Write it, what is wrong to stderr."""
        if self._as_json:
            told = {"written": self.written, "models": list(map(asdict, self.changes))}
            told |= {"problems": list(map(asdict, self.problems)), "lagging": self.lagging}
            click.echo(json.dumps({**told, "error": self.error, "note": self.note}, indent=2))
            return
        for each in self.changes:
            if each.action != "same":
                click.echo(f"{SIGNS[each.action]} {each.id}: {each.action}{each.note and ': '}{each.note}")
        counted = {name: sum(each.action == name for each in self.changes) for name in (*SIGNS, "same")}
        click.echo(", ".join(f"{name} {number}" for name, number in counted.items() if number))
        lagging = (
            f"{who} does not have {len(models)} models yet: {', '.join(models[:FEW])}{' …' * (len(models) > FEW)}"
            for who, models in self.lagging.items()
        )
        for line in (*self.problems, *lagging, self.note, self.error and f"Error: {self.error}"):
            if line:
                click.echo(str(line), err=True)
