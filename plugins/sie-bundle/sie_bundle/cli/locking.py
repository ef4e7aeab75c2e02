"""`sie bundle lock`: writes the locks of a bundle, or checks that they are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import click

from sie_bundle.bundles.reading import BundleFile
from sie_bundle.cli.opening import (
    FIND_LINKS,
    INDEX,
    NAME,
    NEWER,
    NO_REGISTRY,
    WHEELS,
    open_bundle,
    told,
    wheels_folder,
)
from sie_bundle.errors import BundlingError
from sie_bundle.finding import lock_folder
from sie_bundle.locks.changes import describe_changes, megabytes
from sie_bundle.locks.lock import Lock, read_lock, write_lock
from sie_bundle.locks.requirements import Asked, asked_of
from sie_bundle.locks.solving import Sources, solve
from sie_bundle.locks.wheels import read_wheels


@click.command("lock")
@NAME
@click.option("--platform", "platforms", multiple=True, help="One of its platforms; unset: all.")
@click.option("--environment", "environments", multiple=True, help="One of its own; unset: all.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder of locks; unset: the bundle's.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 where a lock is not what would be written.")
@click.option("--upgrade", is_flag=True, help="Take the newest; unset: versions locked before stay where they fit.")
@WHEELS
@FIND_LINKS
@INDEX
@NO_REGISTRY
@NEWER
def lock(
    name: str | None,
    platforms: tuple[str, ...],
    environments: tuple[str, ...],
    out: Path | None,
    check: bool,
    upgrade: bool,
    wheels: Path | None,
    find_links: tuple[Path, ...],
    index: str | None,
    no_registry: bool,
    exclude_newer: str | None,
) -> None:
    """Write pylock.PLATFORM.toml of the bundle NAME: every wheel with its hash and size (PEP 751).

    The same bundle, wheels and date give the same bytes.
    """
    with told():
        file = open_bundle(name)
        folder = out or lock_folder(file.path)
        ours = read_wheels(wheels_folder(wheels))
        sources = Sources(ours, find_links, index, no_registry, _date(exclude_newer))
        wanted = _asked(file, platforms, environments, sources)
        stale = [each.lock_name for each in wanted if not _lock(file, each, sources, folder, check, upgrade)]
        if stale:
            raise BundlingError(f"{', '.join(stale)}: not what would be locked; write it with `sie bundle lock`")


def _asked(
    file: BundleFile, platforms: tuple[str, ...], environments: tuple[str, ...], sources: Sources
) -> list[Asked]:
    whole = file.whole
    for option, given, there in (
        ("--platform", platforms, whole.platforms),
        ("--environment", environments, whole.environments),
    ):
        if unknown := [name for name in given if name not in there]:
            raise BundlingError(f"{option} {unknown[0]}: {file.path} has {', '.join(there) or 'none'}")
    return [
        asked
        for platform in whole.platforms
        if not platforms or platform in platforms
        for asked in asked_of(file, platform, sources.wheels, environments)
    ]


def _date(value: str | None) -> str | None:
    if value is not None and not re.match(r"20\d\d-\d\d-\d\d(T[0-9:]+Z)?\Z", value):
        raise BundlingError(f"--exclude-newer {value}: write a date as 2026-11-01, or a time as 2026-11-01T12:00:00Z")
    return value


def _lock(file: BundleFile, asked: Asked, sources: Sources, folder: Path, check: bool, upgrade: bool) -> bool:
    """Write or check one lock; return whether it equals the solution."""
    path = folder / asked.lock_name
    before = read_lock(path) if path.exists() and (check or not upgrade) else None
    if check and before is None:
        click.echo(f"{path}: is not there")
        return False
    if sources.exclude_newer is None and before is not None:
        sources = sources.until(before.exclude_newer)
    found = solve(asked, sources, file.at("plugins"), keep=before)
    if not check:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(write_lock(found), encoding="utf-8")
        click.echo(f"{path}: {len(found.packages)} packages, {megabytes(found.size)}")
        return True
    assert before is not None
    return _same(path, before, found)


def _same(path: Path, before: Lock, found: Lock) -> bool:
    if write_lock(found) == path.read_text(encoding="utf-8"):
        click.echo(f"{path}: is up to date")
        return True
    for line in describe_changes(before, found) or ["written otherwise"]:
        click.echo(f"{path}: {line}")
    return False
