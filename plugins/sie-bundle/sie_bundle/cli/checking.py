"""`sie bundle check`: says what is wrong with a bundle, a line each with file, line and remedy."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import click

from sie_bundle.checks.check import Surroundings, check_bundle
from sie_bundle.cli.opening import FIND_LINKS, INDEX, NAME, NO_REGISTRY, open_bundle, told
from sie_bundle.errors import BundlingError, ToolMissing
from sie_bundle.locks.solving import Sources
from sie_bundle.locks.wheels import read_wheels
from sie_core.cli.composition.compose import read_settings
from sie_core.logs import configure_logging
from sie_core.plugins.output import stdout_to_stderr


@click.command("check")
@NAME
@click.option(
    "--wheels",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of wheels of plugins that are not installed here.",
)
@click.option("--no-solve", is_flag=True, help="Leave out whether the versions can be had together.")
@click.option("--ask-hub", is_flag=True, help="Ask the Hub whether pins are commits there.")
@FIND_LINKS
@INDEX
@NO_REGISTRY
def check(
    name: str | None,
    wheels: Path | None,
    no_solve: bool,
    ask_hub: bool,
    find_links: tuple[Path, ...],
    index: str | None,
    no_registry: bool,
) -> None:
    """Check the bundle NAME: plugins, models, settings, overrides, versions, licences.

    Exits with 1 if something is wrong; other findings for an operator are notes.
    """
    from sie_core.defaults import BUILTINS

    settings = read_settings()
    configure_logging("CRITICAL", as_json=False)
    with told():
        file = open_bundle(name)
        sources = Sources(read_wheels(wheels) if wheels else {}, find_links, index, no_registry)
        today = datetime.datetime.now(tz=datetime.UTC).date()
        around = Surroundings(settings, tuple(BUILTINS), sources, today, not no_solve, ask_hub)
        try:
            with stdout_to_stderr():
                findings = check_bundle(file, around)
        except ToolMissing as error:
            raise BundlingError(f"{error}; or leave the versions out with --no-solve") from None
    for finding in sorted(findings, key=lambda each: each.note):
        click.echo(str(finding))
    wrong = sum(not finding.note for finding in findings)
    click.echo(f"{file.whole.name}: {f'{wrong} to mend' if wrong else 'nothing to mend'}")
    sys.exit(1 if wrong else 0)
