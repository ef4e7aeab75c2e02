"""`sie bundle show` and `list`: bundles, the models they serve, and the contents of their locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from sie_bundle.bundles.reading import BundleError, BundleFile, shipped_bundles
from sie_bundle.bundles.schema import WholeBundle
from sie_bundle.checks.check import of_any
from sie_bundle.checks.plugins import check_plugins
from sie_bundle.cli.opening import NAME, open_bundle, told
from sie_bundle.errors import BundlingError
from sie_bundle.finding import find_bundle, lock_folder, names_in
from sie_bundle.locks.changes import describe_changes, megabytes
from sie_bundle.locks.lock import Lock, read_lock
from sie_bundle.locks.requirements import lock_name
from sie_bundle.locks.tree import draw_tree
from sie_bundle.serving import served_by
from sie_core.catalog import build_catalog
from sie_core.cli.composition.compose import read_settings
from sie_core.logs import configure_logging
from sie_core.plugins.output import stdout_to_stderr


@click.command("list")
def list_bundles() -> None:
    """List the bundles of SIE_BUNDLES_DIR, or those that ship where it is unset."""
    folder = read_settings().bundles_dir or shipped_bundles()
    with told():
        names = names_in(folder)
    for name in names:
        try:
            whole = BundleFile.read(find_bundle(name, folder)).whole
        except BundleError as error:
            click.echo(str(error), err=True)
            continue
        mark = " (default)" if whole.default else ""
        click.echo(f"{whole.name}{mark}  priority {whole.priority}  {', '.join(whole.platforms)}")
        click.echo(f"    {', '.join(plugin.distribution for plugin in whole.plugins)}")


@click.command("show")
@NAME
@click.option("--against", type=click.Path(exists=True, path_type=Path), help="An older lock, or a folder of them.")
@click.option("--locks", type=click.Path(file_okay=False, path_type=Path), help="Folder of locks; unset: the bundle's.")
def show(name: str | None, against: Path | None, locks: Path | None) -> None:
    """Show the bundle NAME, what it serves, and the tree of each of its locks with sizes.

    With --against, what has changed since older locks instead of the tree.
    """
    configure_logging("CRITICAL", as_json=False)
    with told():
        file = open_bundle(name)
        lines = list(_described(file))
        lines += _locks(file.whole, locks or lock_folder(file.path), against)
    click.echo("\n".join(lines))


def _described(file: BundleFile) -> Iterator[str]:
    from sie_core.defaults import BUILTINS

    whole, settings = file.whole, read_settings()
    with stdout_to_stderr():
        found = check_plugins(file, settings, BUILTINS, {})
        served = found.plugins and served_by(file, build_catalog(of_any(settings), found.plugins), found.plugins)
    yield f"{whole.name}: priority {whole.priority}, Python {whole.python}, {', '.join(whole.platforms)} ({file.path})"
    for plugin in whole.plugins:
        extras = f"[{','.join(plugin.extras)}]" if plugin.extras else ""
        where = f" on {', '.join(plugin.platforms)}" if plugin.platforms else ""
        yield f"  plugin {plugin.distribution}{extras}{plugin.range}{where}"
    for model in whole.models:
        pin = f" at {model.revision}" if model.revision else ""
        yield f"  model {model.id}{pin}{', baked' if model.bake else ''}"
    for override in whole.overrides:
        yield f"  override {override.package} {override.spec}: {override.reason}"
    if served:
        yield f"  serves {len(served.models)} models known here; config hash {served.config_hash or 'none'}"
        yield f"  bundle hash {served.bundle_hash}"
    if not found.whole:
        yield "  not all of its plugins are usable here: `sie bundle check` says why; the hashes are of those that are"


def _locks(whole: WholeBundle, folder: Path, against: Path | None) -> Iterator[str]:
    names = [
        lock_name(platform, environment)
        for platform in whole.platforms
        for environment in ["", *whole.environments]
        if (folder / lock_name(platform, environment)).is_file()
    ]
    if not names:
        yield f"no locks in {folder}: write them with `sie bundle lock`"
    for name in names:
        lock = read_lock(folder / name)
        yield f"{folder / name}: {len(lock.packages)} packages, {megabytes(lock.size)}"
        yield from (f"  {line}" for line in (draw_tree(lock) if against is None else _changes(lock, name, against)))


def _changes(lock: Lock, name: str, against: Path) -> list[str]:
    file = against / name if against.is_dir() else against
    old = read_lock(file)
    if (old.platform, old.environment) != (lock.platform, lock.environment):
        its = lock_name(old.platform, old.environment)
        raise BundlingError(f"--against {file}: is a {its}, not a {name}; name a folder of locks")
    return describe_changes(old, lock) or ["nothing has changed"]
