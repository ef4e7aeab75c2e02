"""`sie bundle build`: an image of a bundle from its lock, or only the context that a builder is given."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from sie_bundle.bundles.reading import BundleFile
from sie_bundle.bundles.schema import PlatformName
from sie_bundle.cli.opening import BUILT, FIND_LINKS, NAME, open_bundle, told
from sie_bundle.errors import BundlingError
from sie_bundle.finding import lock_folder
from sie_bundle.images.builders import BUILDERS, find_builder
from sie_bundle.images.containerfile import SHARE
from sie_bundle.images.context import write_context
from sie_bundle.images.plan import Image, epoch, version_of
from sie_bundle.locks.lock import Lock, read_lock
from sie_bundle.locks.requirements import lock_name

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("build")
@NAME
@click.option("--platform", default="cpu", show_default=True, help="One of the bundle's platforms.")
@click.option("--context", type=FOLDER, help="Write the build's context into this folder, and build nothing.")
@click.option("--builder", type=click.Choice(BUILDERS), help="What builds; unset: the first of these that is there.")
@click.option("--base", help="Image that it stands on, in place of the platform's.")
@click.option("--tag", help="Name of the image; unset: sie-server:VERSION-PLATFORM-NAME.")
@click.option("--program", default="serve", show_default=True, help="Command of `sie` that the image runs.")
@click.option("--locks", type=FOLDER, help="Folder of locks; unset: where `sie bundle lock` writes them.")
@click.option("--out", type=FOLDER, help="Folder for the bill of materials; unset: that of the locks.")
@click.option("--wheels", type=FOLDER, help=f"Folder of the wheels that no registry is asked for; unset: {BUILT}.")
@FIND_LINKS
def build(
    name: str | None,
    platform: str,
    context: Path | None,
    builder: str | None,
    base: str | None,
    tag: str | None,
    program: str,
    locks: Path | None,
    out: Path | None,
    wheels: Path | None,
    find_links: tuple[Path, ...],
) -> None:
    """Build an image of the bundle NAME from its locks, which `sie bundle lock NAME` writes.

    Wheels are fetched here, by pip with its configuration; the build itself needs no network. SOURCE_DATE_EPOCH dates
    the image: the same context and date give the same digest.
    """
    with told():
        file = open_bundle(name)
        folder = locks or lock_folder(file.path)
        image = _image(file, platform, folder, base, program)
        places = [wheels or BUILT, folder / "wheels", *find_links]
        if context is not None:
            write_context(image, context, places)
            click.echo(f"{context}: the context of {tag or image.tag}")
            return
        _build(image, tag or image.tag, builder, places, out or folder)


def _build(image: Image, tag: str, name: str | None, places: Sequence[Path], out: Path) -> None:
    builder = find_builder(name)
    with tempfile.TemporaryDirectory(prefix="sie-build-") as folder:
        context = Path(folder, "context")
        write_context(image, context, places)
        builder.build(context, tag, image.epoch)
    out.mkdir(parents=True, exist_ok=True)
    sbom = out / f"sbom.{image.platform}.cdx.json"
    builder.copy_out(tag, f"{SHARE}/sbom.cdx.json", sbom)
    click.echo(f"{tag}: built by {builder.name}; {sbom}: what it is made of")


def _image(file: BundleFile, platform: str, folder: Path, base: str | None, program: str) -> Image:
    whole = file.whole
    kind = next((each for each in whole.platforms if each == platform), None)
    if kind is None:
        raise BundlingError(f"--platform {platform}: {file.path} has {', '.join(whole.platforms)}")
    others = [name for name, each in whole.environments.items() if each.platforms is None or platform in each.platforms]
    locks = tuple(_locks(folder, platform, ["", *others]))
    return Image(whole, kind, locks, base or _base(file, kind), version_of(locks), program, epoch())


def _locks(folder: Path, platform: str, environments: Sequence[str]) -> list[Lock]:
    return [read_lock(folder / lock_name(platform, each)) for each in environments]


def _base(file: BundleFile, platform: PlatformName) -> str:
    stated = file.whole.platforms[platform].base
    if stated is None:
        raise BundlingError(
            f"{file.at('platforms', platform)}: names no `base`: write an image by digest, or give one with --base"
        )
    return stated
