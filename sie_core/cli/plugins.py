"""`sie plugins`: every installed plugin, what it registers, and why one is broken.

It only prints reports; finding out is the affair of `sie_core.plugins`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import click

from sie_core.cli import LazyGroup
from sie_core.cli.composition.checkup import try_out
from sie_core.cli.composition.compose import find_plugins, read_settings
from sie_core.logs import configure_logging
from sie_core.plugins import PluginReport
from sie_core.plugins.output import stdout_to_stderr

PREFIX = "sie_"


@click.group("plugins", cls=LazyGroup, below="plugins ", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON array, for programs.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the installed plugins, what they register and why one is broken or fails.

    Whatever can be tried without loading a model is tried. Exits with 1 if a plugin is broken or fails.
    """
    if context.invoked_subcommand is None:
        show(as_json=as_json)


def show(*, as_json: bool) -> None:
    """Print the report of every plugin, and end with 1 if one is broken or fails."""
    settings = read_settings()
    # The table reports broken plugins, so the log does not repeat them.
    configure_logging("INFO" if settings.trace_hooks else "CRITICAL", as_json=settings.log_json)
    plugins = find_plugins(settings)
    with stdout_to_stderr():
        refused = try_out(settings, plugins)
    reports = plugins.reports_now()
    if as_json:
        click.echo(json.dumps([report.as_dict() for report in reports], indent=2))
    else:
        click.echo("\n".join(table(reports)))
    for problem in refused:
        click.echo(problem, err=True)
    if refused or plugins.problems():
        sys.exit(1)


def table(reports: Iterable[PluginReport]) -> list[str]:
    """Format reports for people, one plugin a line, with its cause or its registrations below."""
    rows = [(report.name, f"{report.distribution} {report.version}", report.state) for report in reports]
    widths = [max(len(row[column]) for row in rows) for column in range(2)] if rows else []
    lines = []
    for row, report in zip(rows, reports, strict=True):
        lines.append("  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2]]))
        if report.cause:
            lines.append(f"    {report.cause}")
        lines += [f"    {each}" for each in report.deprecated]
        for hook, names in report.registers.items():
            lines.append(f"    {hook.removeprefix(PREFIX).replace('_', ' ')}: {', '.join(names)}")
    return lines or ["No plugins."]
