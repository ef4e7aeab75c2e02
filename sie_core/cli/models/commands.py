"""`sie models`: the catalog's models, the place of their weights, and the family that serves each, with reasons.

It only prints; `sie_core.catalog` and `sie_core.cache` find out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from sie_core.cache import find_weights
from sie_core.cache.choices import SERVED, kept_choices, served_setup
from sie_core.cache.disk.cache import cache_folder
from sie_core.catalog import check_profile, choose_family, read_card, see
from sie_core.catalog.info import describe
from sie_core.catalog.sightings import fault_of
from sie_core.cli.composition.compose import BadSettings
from sie_core.cli.composition.parts import Parts, gather
from sie_core.cli.models.pinning import pin
from sie_core.cli.models.status import status
from sie_core.contracts import Device, ModelFamily, ModelLoadError, Option, PluginError, ResolvedModel
from sie_core.plugins.output import stdout_to_stderr
from sie_core.plugins.selection import choose_device

ABSENT = "the weights, which decide, are not here yet"
EXPECTED = f"expected by the config; {ABSENT}"

WIDTH = 100
"""Columns of the list."""
ID_WIDTH = 48
"""Width of the id column; a longer id has a separate line."""
NOT_SHOWN = ("text", "content")
"""Fields of a config that repeat its file."""

ALL = click.option("--all", "every", is_flag=True, help="The whole catalog: also models whose weights are not here.")
JSON = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@click.group("models", invoke_without_command=True)
@ALL
@JSON
@click.pass_context
def command(context: click.Context, every: bool, as_json: bool) -> None:
    """List the models of the catalog and say which family serves each.

    Without a further command it lists.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_models, every=every, as_json=as_json)


command.add_command(pin)
command.add_command(status)


@command.command("list")
@ALL
@JSON
def list_models(every: bool, as_json: bool) -> None:
    """List the models that need no fetch, with the operations, the place of the weights, and what last served each."""
    parts = gather()
    with stdout_to_stderr():
        device = _device(parts)
        rows = [_row(model, parts, device) for model in parts.catalog.models()]
    if as_json:
        click.echo(_json({"models": rows, "problems": [asdict(problem) for problem in parts.catalog.problems]}))
    else:
        here = [row for row in rows if (row["weights"] or row["weightless"]) and not row["problem"]]
        absent = [row for row in rows if not (row["weights"] or row["weightless"])]
        shown = here + absent if every else here
        click.echo("\n".join(_table(shown)) if shown else "No models are here.")
        if absent and not every:
            click.echo(f"{len(absent)} more are fetched when they are asked for; `sie models --all` lists them.")
        not_served = [(row["id"], row["problem"]) for row in rows if row["problem"]]
        not_served += [(problem.source, problem.message) for problem in parts.catalog.problems]
        for name, problem in not_served:
            click.echo(f"Not served: {name}: {problem}", err=True)
    parts.tell_problems()


@command.command("show")
@click.argument("model_id", metavar="ID")
@JSON
def show(model_id: str, as_json: bool) -> None:
    """Show the config of ID, its weights, the family that serves it and why, and the options it knows."""
    parts = gather()
    model = parts.resolve(model_id)
    with stdout_to_stderr():
        device = _device(parts)
        facts = {**_row(model, parts, device), **_config(model), **_family(model, parts, device)}
        facts["choices"] = _choices(facts["weights"], parts)
        facts["cache"] = str(cache_folder(parts.settings))
        facts["places"] = [tier.name for tier in parts.chain.tiers]
    click.echo(_json(facts) if as_json else "\n".join(_lines(facts)))
    parts.tell_problems()


def _json(value: object) -> str:
    # YAML knows dates, which an option of a config may hold; JSON does not.
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _device(parts: Parts) -> Device:
    try:
        report = partial(parts.plugins.faulty, "sie_device_probes")
        return choose_device(parts.settings.device, parts.plugins.device_probes, report)
    except PluginError as error:
        raise BadSettings(str(error)) from None


def _row(model: ResolvedModel, parts: Parts, device: Device) -> dict[str, Any]:
    found = find_weights(model.config, parts.chain)
    seen = see(model, parts.chain, parts.plugins, device) if found else None
    facts = None if seen is None else seen.facts
    declared = describe(model, facts, parts.plugins.postprocessors, available=seen is not None)
    return {
        "id": model.id,
        "source": model.config.source,
        "weightless": model.config.weightless,
        "weights": {"tier": found[0], "folder": str(found[1])} if found else None,
        "served": _served(model, found[1], parts, device) if found else None,
        "operations": list(declared.operations),
        "outputs": list(declared.outputs),
        "inputs": list(declared.inputs),
        "problem": fault_of(model, parts.chain, parts.plugins, device),
    }


def _config(model: ResolvedModel) -> dict[str, Any]:
    config = asdict(model.config)
    elsewhere = {"id", "source", "profiles", "weightless", "expected"}
    return {
        "config": {name: config[name] for name in config if name not in elsewhere},
        "profile": asdict(model.profile),
        "profiles": list(model.config.profiles),
    }


def _family(model: ResolvedModel, parts: Parts, device: Device) -> dict[str, Any]:
    """Name the family that serves the model on this machine's device, or the reason why none can be named."""
    found = find_weights(model.config, parts.chain)
    absent = found is None and not model.config.weightless
    if absent and model.config.expected is None:
        tiers = ", ".join(tier.name for tier in parts.chain.tiers)
        problem = f"the weights are not on this machine, and they decide; a load asks: {tiers}"
        return _none(device, problem)
    if fault := fault_of(model, parts.chain, parts.plugins, device):
        return _none(device, fault)
    try:
        card = read_card(found[1]) if found else model.config.expected
        choice = choose_family(parts.plugins, model, card, device)
        ignored = check_profile(
            choice.family, model.profile, parts.plugins.postprocessors, model.config, parts.plugins.option_names()
        )
    except ModelLoadError as error:
        return _none(device, f"{ABSENT}; by the config alone: {error}" if absent else str(error))
    return {
        "device": str(device),
        "family": choice.family.id,
        "reason": EXPECTED if absent else choice.reason,
        "expected": absent,
        "candidates": [
            {
                "family": each.family,
                "claim": each.reason,
                "priority": each.priority,
                "serves_device": each.serves_device,
            }
            for each in (() if absent else choice.candidates)
        ],
        "refusals": [asdict(each) for each in (() if absent else choice.refusals)],
        "ignored_options": list(ignored),
        "options": _options(choice.family),
    }


def _none(device: Device, problem: str) -> dict[str, Any]:
    return {
        "device": str(device), "family": None, "problem": problem, "candidates": [], "refusals": [], "options": []
    }  # fmt: skip


def _served(model: ResolvedModel, weights: Path, parts: Parts, device: Device) -> str | None:
    """Name the precision and the runner of the last load on this machine; None if unknown."""
    kept = kept_choices(parts.settings, parts.plugins, weights).recall(SERVED, served_setup(model, device))
    return None if kept is None else kept.chosen


def _choices(weights: Mapping[str, str] | None, parts: Parts) -> list[dict[str, Any]]:
    """List the measurements and choices of loads on this machine, which later ones keep."""
    if weights is None:
        return []
    kept = kept_choices(parts.settings, parts.plugins, Path(weights["folder"]))
    return [asdict(choice) for choice in kept.all()]


def _options(family: ModelFamily) -> list[dict[str, Any]]:
    return [
        {
            "name": option.name,
            "stage": option.stage,
            "operations": list(option.operations),
            "allowed": _allowed(option),
            "description": option.description,
        }
        for option in family.options
    ]


def _allowed(option: Option) -> str:
    if option.choices:
        return ", ".join(repr(choice) for choice in option.choices)
    kinds = option.type if isinstance(option.type, tuple) else (option.type,)
    least = "" if option.minimum is None else f" from {option.minimum:g}"
    most = "" if option.maximum is None else f" to {option.maximum:g}"
    return " or ".join(kind.__name__ for kind in kinds) + least + most


def _table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [
        ("MODEL", "ANSWERS", "WEIGHTS", "LAST SERVED BY"),
        *((row["id"], _answers(row), _where(row), row["served"] or "") for row in rows),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    first = min(ID_WIDTH, widths[0])
    laid = []
    for name, *cells in lines:
        if len(name) > first:
            laid.append(name)
            name = ""
        padded = zip((name, *cells), (first, *widths[1:], 0), strict=True)
        line = "  ".join(f"{cell:<{width}}" for cell, width in padded).rstrip()
        laid.append(line if len(line) <= WIDTH or not sys.stdout.isatty() else f"{line[: WIDTH - 1]}…")
    return laid


def _answers(row: Mapping[str, Any]) -> str:
    """Name the vectors of `encode` and the other operations; the weights decide if the config does not."""
    vectors = ", ".join(name for name in row["outputs"] if name not in ("score", "json"))
    named = [vectors if name == "encode" and vectors else name for name in row["operations"]]
    return ", ".join(named) or ("known once it is loaded" if row["weightless"] else "as its weights say")


def _where(row: Mapping[str, Any]) -> str:
    if row["weightless"]:
        return "none needed"
    return row["weights"]["tier"] if row["weights"] else "not here"


def _lines(facts: Mapping[str, Any]) -> list[str]:
    weights = f"{_where(facts)}: {facts['weights']['folder']}" if facts["weights"] else _where(facts)
    if not (facts["weights"] or facts["weightless"]):
        weights += f"; a load asks: {', '.join(facts['places'])}"
    lines = [
        facts["id"],
        f"  config    {facts['source']}",
        f"  answers   {_answers(facts)}",
        f"  weights   {weights}",
        f"  cache     {facts['cache']}",
        f"  device    {facts['device']}",
    ]
    if facts["family"] is None:
        lines.append(f"  family    none: {facts['problem']}")
    else:
        lines.append(f"  family    {facts['family']}: {facts['reason']}")
    for each in facts["candidates"][1:]:
        unfit = "" if each["serves_device"] else ", does not serve this device"
        lines.append(f"            also {each['family']}: {each['claim']} (priority {each['priority']}{unfit})")
    lines += [f"            not {each['family']}: {each['reason']}" for each in facts["refusals"]]
    for each in facts["choices"]:
        lines.append(f"  {each['about']:<9} {each['chosen']}: {each['reason']}")
        setup = ", ".join(f"{name} {value}" for name, value in each["setup"].items())
        measured = "at the last load of" if each["about"] == SERVED else "measured with"
        again = "" if each["settled"] else "; the gap is small, so the next load measures again"
        lines.append(f"            {measured} {setup}{again}")
    for title in ("config", "profile"):
        lines += ["", f"  {title}", *_fields(facts[title])]
    if facts.get("ignored_options"):
        lines += ["", f"  ignored: {', '.join(facts['ignored_options'])} (unknown to {facts['family']})"]
    if facts["options"]:
        lines += ["", "  options"]
        for option in facts["options"]:
            of = f" of {', '.join(option['operations'])}" if option["operations"] else ""
            lines.append(
                f"    {option['name']} ({option['allowed']}; read in {option['stage']}{of}): {option['description']}"
            )
    return lines


def _fields(values: Mapping[str, Any]) -> list[str]:
    return [
        f"    {name}: {json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in values.items()
        if value not in (None, {}, (), False) and name not in NOT_SHOWN
    ]
