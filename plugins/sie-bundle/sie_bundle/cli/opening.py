"""Shared by the commands on one bundle: finding its file, and the options that name the folder of wheels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sie_bundle.building import build_wheels, checkout
from sie_bundle.bundles.reading import BundleError, BundleFile, shipped_bundles
from sie_bundle.errors import BundlingError
from sie_bundle.finding import default_in, find_bundle
from sie_core.cli.composition.compose import read_settings

BUILT = Path("dist", "wheels")
WHEELS = click.option(
    "--wheels",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of wheels that no registry is asked for: those of this project, and of plugins of yours. Unset: "
    f"they are built from the checkout into {BUILT}.",
)
FIND_LINKS = click.option(
    "--find-links",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of wheels that is looked through beside the registry; may be repeated.",
)
INDEX = click.option("--index", help="Index of torch, in place of the platform's; `none`: the ordinary one.")
NO_REGISTRY = click.option("--no-registry", is_flag=True, help="Look into folders alone.")
NEWER = click.option("--exclude-newer", metavar="DATE", help="What was uploaded later counts not, as 2026-11-01.")


@contextmanager
def told() -> Iterator[None]:
    """Have errors that stop a command end it with 1 and their message."""
    try:
        yield
    except (BundlingError, BundleError) as error:
        raise click.ClickException(str(error)) from None


NAME = click.argument("name", metavar="[NAME]", required=False)


def open_bundle(name: str | None) -> BundleFile:
    """Read a bundle by name or path; by default the folder's default bundle.

    Raises:
        BundlingError: It does not exist.
        BundleError: A field is wrong.
    """
    folder = read_settings().bundles_dir or shipped_bundles()
    return BundleFile.read(find_bundle(default_in(folder) if name is None else name, folder))


def wheels_folder(given: Path | None) -> Path:
    """Return the folder of our wheels; build them if none is given.

    Raises:
        BundlingError: They cannot be built.
    """
    if given is not None:
        return given
    sources = checkout()
    if sources is None:
        raise BundlingError("this sie-core has no sources beside it to build wheels from: name a folder with --wheels")
    click.echo(f"Building wheels into {BUILT} (--wheels {BUILT} takes these again) …", err=True)
    build_wheels(sources, BUILT)
    return BUILT
