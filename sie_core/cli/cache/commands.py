"""`sie cache`: what the local cache holds; pulls, verifies and removes weights.

It only asks and reports; the work is done by `sie_core.cache`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import click

from sie_core.cache import DiskCache, DiskLimits, fetch_weights, weight_request
from sie_core.cache.disk import hub_layout
from sie_core.cache.disk.cache import CachedRepository, disk_cache, megabytes
from sie_core.cache.disk.proofs import read_record
from sie_core.catalog import profiles_of
from sie_core.catalog.fetching import asked_weights
from sie_core.catalog.sources.from_weights import weights_config
from sie_core.cli.cache.pulling import Progress, loras_of, needed_beside
from sie_core.cli.composition.compose import read_settings
from sie_core.cli.composition.parts import Parts, gather
from sie_core.contracts import InferenceError, ModelConfig, ModelLoadError, is_pickled
from sie_core.contracts.model.weights import SAFETENSORS, TOKENIZERS, holds_weights
from sie_core.logs import configure_logging

JSON = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@click.group("cache", invoke_without_command=True)
@JSON
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List, pull, verify and remove the weights of the local cache.

    Without a further command it lists.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_cache, as_json=as_json)


@command.command("list")
@JSON
def list_cache(as_json: bool) -> None:
    """List what the local cache holds, the longest unused last."""
    cache = _cache()
    found = sorted(cache.repositories(), key=lambda each: -each.last_used)
    rows = [_row(cache, each) for each in found]
    if as_json:
        click.echo(json.dumps({"folder": str(cache.folder), "repositories": rows}, indent=2))
        return
    for row in rows:
        state = "in use" if row["in_use"] else "" if row["removable"] else "not SIE's"
        used = datetime.fromtimestamp(float(str(row["last_used"]))).strftime("%Y-%m-%d %H:%M")
        click.echo(f"{megabytes(float(str(row['bytes']))):>10}  {used}  {state:<9}  {row['repository']}")
    click.echo(f"{megabytes(sum(each.size for each in found)):>10}  in {cache.folder}")


def _cache() -> DiskCache:
    settings = read_settings()
    configure_logging("ERROR", as_json=settings.log_json)
    return disk_cache(settings)


def _row(cache: DiskCache, each: CachedRepository) -> dict[str, object]:
    return {
        "repository": each.repo_id,
        "bytes": each.size,
        "last_used": each.last_used,
        "in_use": cache.in_use(each.repo_id),
        "removable": each.removable,
        "revisions": {folder.name: _lacking(folder) or "whole" for folder in each.snapshots},
    }


@command.command("pull")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--revision", help="A commit, branch or tag of repositories that no config names.")
def pull(models: Sequence[str], revision: str | None) -> None:
    """Fetch the weights of each MODEL and of the LoRA adapters its config declares, before the first request.

    MODEL is the id of a catalog model or of a repository. If SIE_CLUSTER_CACHE_FILL is set, weights that the cluster
    cache lacks are copied to it.
    """
    parts = gather()
    if failed := [model for model in models if not _pull_all(parts, model, revision)]:
        raise click.ClickException(f"not pulled: {', '.join(dict.fromkeys(failed))}")


def _pull_all(parts: Parts, model: str, revision: str | None) -> bool:
    """Pull the weights of a model, its LoRA adapters, and what it needs of other repositories; report each."""
    try:
        resolved = parts.catalog.resolve(model)
    except InferenceError:
        (resolved,) = profiles_of(replace(weights_config(model, hf_id=model), hf_revision=revision))
    folder = _pull(parts, resolved.config, asked_weights(resolved, parts.plugins))
    others: list[tuple[ModelConfig, tuple[str, ...]]] = [(lora, SAFETENSORS) for lora in loras_of(resolved.config)]
    if folder is not None:
        needed = needed_beside(folder, resolved, parts.plugins)
        others += [(ModelConfig(each.repo_id, hf_revision=each.revision), each.weights) for each in needed]
    pulled = [_pull(parts, *each) is not None for each in others]
    return all(pulled) and (folder is not None or resolved.config.weightless)


def _pull(parts: Parts, config: ModelConfig, weights: tuple[str, ...]) -> Path | None:
    """Pull the weights of one config; report the result. None if there are none, or they cannot be had."""
    progress = Progress(config.id, sys.stderr)
    request = replace(weight_request(config), progress=progress, weights=weights)
    stored: list[str] = []
    started = time.monotonic()
    try:
        if config.weightless or config.weights_path is not None:
            folder = fetch_weights(config, parts.chain)
        else:
            folder = parts.chain.fetch(request)
            parts.chain.wait_for_fills()
            stored = parts.chain.fill(request, folder)
    except ModelLoadError as error:
        click.echo(f"{config.id}: {error.failure}: {error}", err=True)
        return None
    finally:
        progress.end()
    where = f", stored in {', '.join(stored)}" if stored else ""
    click.echo(f"{config.id}: {folder or 'needs no weights'}, {time.monotonic() - started:.1f} s{where}")
    return folder


@command.command("verify")
@click.argument("repositories", metavar="[REPOSITORY...]", nargs=-1)
def verify(repositories: Sequence[str]) -> None:
    """Hash every file of the local cache, or of each REPOSITORY, and name those that are missing or wrong."""
    cache = _cache()
    wrong = 0
    for each in _chosen(cache, repositories):
        for folder in each.snapshots:
            faults = _faults(cache, folder)
            wrong += bool(faults)
            click.echo(f"{each.repo_id} {folder.name}: {'wrong' if faults else 'right'}")
            for name, fault in faults.items():
                click.echo(f"    {name} {fault}")
    if wrong:
        raise click.ClickException(f"{wrong} wrong; `sie cache pull` fetches wrong and missing files again")


def _lacking(folder: Path) -> str | None:
    """Name a file that a snapshot lacks; it may hold pickled weights, or have been fetched for its small files."""
    asked = read_record(folder).files
    if asked and not any(holds_weights(name, SAFETENSORS) or is_pickled(name) for name in asked):
        return hub_layout.missing(folder, TOKENIZERS)
    return hub_layout.missing(folder, pickles=tuple(file.name for file in folder.iterdir()))


def _faults(cache: DiskCache, folder: Path) -> dict[str, str]:
    faults = cache.proofs.faults(folder, again=True)
    lacking = _lacking(folder)
    return faults if lacking is None or faults else {lacking: "is missing"}


@command.command("prune")
@click.argument("repositories", metavar="[REPOSITORY...]", nargs=-1)
@click.option("--max-bytes", type=click.IntRange(0), help="Remove the longest unused until the rest is no more.")
def prune(repositories: Sequence[str], max_bytes: int | None) -> None:
    """Remove each REPOSITORY, or the longest unused until the local cache is within its limits.

    Weights in use by any process stay. If SIE_LOCAL_CACHE does not name the cache, weights stored by other tools stay
    too, unless named here.
    """
    cache = _cache()
    if not repositories:
        limits = cache.limits or DiskLimits()
        for each in cache.shrink(DiskLimits(limits.percent, limits.max_bytes if max_bytes is None else max_bytes)):
            click.echo(f"removed {each.repo_id}, {megabytes(each.size)}")
        return
    kept = []
    for each in _chosen(cache, repositories):
        if cache.remove(each.repo_id):
            click.echo(f"removed {each.repo_id}, {megabytes(each.size)}")
        else:
            kept.append(each.repo_id)
    if kept:
        raise click.ClickException(f"in use, or not to be written to, and kept: {', '.join(kept)}")


def _chosen(cache: DiskCache, names: Sequence[str]) -> list[CachedRepository]:
    found = {each.repo_id: each for each in cache.repositories()}
    if unknown := [name for name in names if name not in found]:
        raise click.ClickException(f"not in {cache.folder}: {', '.join(unknown)}; `sie cache` lists what is")
    return [found[name] for name in names] if names else list(found.values())
