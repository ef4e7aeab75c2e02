"""`sie models pin`: fixes a model's weights to the commit they are at.

It only asks and reports; the commit comes from `sie_core.cache.hub.revisions`, the file from
`sie_core.catalog.configs.pinning`.
"""

from __future__ import annotations

from pathlib import Path

import click

from sie_core.cache import weight_request
from sie_core.cache.hub.revisions import resolve_revision
from sie_core.cache.hub.tier import ask_pickles
from sie_core.catalog import ConfigError
from sie_core.catalog.configs.pinning import write_pinned
from sie_core.cli.composition.parts import gather
from sie_core.contracts import ModelConfig, ModelLoadError, PinnedFile
from sie_core.settings import Settings


@click.command("pin")
@click.argument("model_id", metavar="ID")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write into; unset: SIE_MODELS_DIR.",
)
@click.option("--pickles", is_flag=True, help="Also pin its pickled weights, by the hashes that the Hub lists.")
def pin(model_id: str, folder: Path | None, pickles: bool) -> None:
    """Write the config of ID, with its revision fixed to a commit, into a folder of configs.

    The commit is the one the local cache holds, or else the one the Hub names; nothing is downloaded. A copy in
    SIE_MODELS_DIR replaces the config it was made from. Pickled weights are read only where a config pins them: once,
    restricted to tensors, and converted to safetensors.
    """
    parts = gather()
    config = parts.resolve(model_id).config
    _check_pinnable(config)
    folder = folder or _own_folder(parts.settings)
    try:
        found = resolve_revision(weight_request(config), parts.settings)
        pins = _ask_pins(config, found.commit, parts.settings) if pickles else {}
        file = write_pinned(config, found.commit, folder, pins)
    except (ModelLoadError, ConfigError, OSError) as error:
        raise click.ClickException(f"{config.id} was not pinned: {error}") from None
    click.echo(f"{config.id}: {found.commit} ({found.tier}), written to {file}")
    for name, each in pins.items():
        click.echo(f"    {name}: {each.size} bytes, SHA-256 {each.sha256}")


def _ask_pins(config: ModelConfig, commit: str, settings: Settings) -> dict[str, PinnedFile]:
    if not settings.hf_fallback:
        raise ModelLoadError("NOT_FOUND", "the Hub lists the hashes, and may not be asked (SIE_HF_FALLBACK=false)")
    if not (pins := ask_pickles(weight_request(config), commit)):
        raise ModelLoadError("NOT_FOUND", f"{config.hf_id} has no pickled weights at {commit}")
    return pins


def _own_folder(settings: Settings) -> Path:
    if isinstance(settings.models_dir, Path):
        return settings.models_dir
    raise click.ClickException(
        f"SIE_MODELS_DIR={settings.models_dir} is an object store: name a local folder by --dir."
    )


def _check_pinnable(config: ModelConfig) -> None:
    if "://" in config.source:
        raise click.ClickException(
            f"{config.id} was not pinned: its config is {config.source}. Pin a copy of it in a local folder "
            "(SIE_MODELS_DIR), and put that in its place."
        )
    if config.hf_id is None or config.weights_path is not None:
        origin = "it has no weights" if config.weightless else f"its weights are the folder {config.weights_path}"
        raise click.ClickException(f"{config.id} has no revision to pin: {origin}.")
