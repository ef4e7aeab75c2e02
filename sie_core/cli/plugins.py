"""`sie plugins`: every installed plugin, what it registers, and why one is broken.

It only prints reports; finding out is the affair of `sie_core.plugins`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from sie_core.cli.compose import find_plugins, read_settings
from sie_core.logs import configure_logging
from sie_core.plugins import PluginReport

PREFIX = "sie_"


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, for programs.")
def command(as_json: bool) -> None:
    """List the installed plugins, what they register and why one is broken."""
    settings = read_settings()
    # The table tells what is broken; the log need not tell it again.
    configure_logging("INFO" if settings.trace_hooks else "ERROR", as_json=settings.log_json)
    reports = find_plugins(settings).reports
    if as_json:
        click.echo(json.dumps([report.as_dict() for report in reports], indent=2))
    else:
        click.echo("\n".join(table(reports)))


def table(reports: Iterable[PluginReport]) -> list[str]:
    """Lay reports out for people, one plugin a line, with its cause or what it registers below."""
    rows = [(report.name, f"{report.distribution} {report.version}", report.state) for report in reports]
    widths = [max(len(row[column]) for row in rows) for column in range(2)] if rows else []
    lines = []
    for row, report in zip(rows, reports, strict=True):
        lines.append("  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2]]))
        if report.cause:
            lines.append(f"    {report.cause}")
        for hook, names in report.registers.items():
            lines.append(f"    {hook.removeprefix(PREFIX).replace('_', ' ')}: {', '.join(names)}")
    return lines or ["No plugins."]
