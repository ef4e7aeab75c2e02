"""Writes the tables of the docs, and the schema of the chart's values; `--check` only says which are out of date.

A table stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from click.testing import CliRunner

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def errors() -> str:
    from sie_sdk.errors import ERRORS

    head = ("code", "status", "retried", "`Retry-After`", "meaning", "remedy")
    return table(head, [
        (f"`{row.code}`", row.status, "yes" if row.retryable else "no",
         "–" if row.retry_after_s is None else f"{row.retry_after_s:g} s", row.meaning, row.remedy)
        for row in ERRORS.values()
    ])  # fmt: skip


def settings(group: str) -> str:
    from sie_cluster.settings import ClusterSettings

    from sie_core.settings import describe_settings

    return _settings(describe_settings(group, ClusterSettings))


def plugin_settings() -> str:
    from sie_core.defaults import BUILTINS
    from sie_core.plugins import discover
    from sie_core.settings import Settings

    rows = sorted((each.variable, each.default, each.description) for each in discover(Settings(), BUILTINS).settings)
    return _settings(rows)


def _settings(rows: list[tuple[str, str, str]]) -> str:
    return table(
        ("variable", "default", "meaning"),
        [(f"`{name}`", f"`{default}`" if default else "–", meaning) for name, default, meaning in rows],
    )


def hooks() -> str:
    from sie_core import hookspecs
    from sie_core.plugins.registration import REGISTRATIONS

    parts = []
    for name, hook in vars(hookspecs).items():
        if name.startswith("sie_") and inspect.isfunction(hook):
            interface = f"Interface: `{REGISTRATIONS[name].current}`"
            parts.append(f"### `{name}{inspect.signature(hook)}`\n\n{inspect.getdoc(hook)}\n\n{interface}\n")
    return "\n".join(parts)


def interfaces() -> str:
    from sie_core.plugins.registration import REGISTRATIONS

    rows: list[tuple[object, ...]] = [
        (f"`{hook}`", row.noun, ", ".join(f"`{each}`" for each in row.served)) for hook, row in REGISTRATIONS.items()
    ]
    return table(("hook", "registers a", "versions that are served"), rows)


def contracts() -> str:
    from sie_core import contracts

    return _pages().page(contracts)


def libraries() -> str:
    listed = (DOCS / "extend/writing-a-plugin.md").read_text().partition("## What a plugin may import\n")[2]
    names = re.findall(r"^\| `(sie_(?:text|pytorch|kit)[\w.]*)` \|", listed, re.MULTILINE)
    return _pages().pages(map(import_module, names))


def _pages() -> Any:
    return _beside("contract_pages")


def _beside(module: str) -> Any:
    sys.path.insert(0, str(DOCS))
    try:
        return import_module(module)
    finally:
        sys.path.remove(str(DOCS))


def chart_values() -> str:
    return table(("value", "default", "allowed", "meaning"), list(_beside("chart_values").of_chart().rows()))


def checks() -> str:
    from sie_kit.checklist import KINDS, check_id

    parts = []
    for kind, found in KINDS.items():
        parts.append(f"## Of a {kind}\n")
        parts += [f"### `{check_id(kind, check)}`\n\n{inspect.getdoc(check)}\n" for check in found]
    return "\n".join(parts)


def limits() -> str:
    from sie_core.api.http.limits import LIMITS

    return table(
        ("limit", "value", "what a violation answers"), [(row.name, row.value, row.violation) for row in LIMITS]
    )


def commands() -> str:
    from sie_core.cli import main

    parts = []
    for arguments in (
        [],
        ["serve"],
        ["cluster"],
        ["cluster", "up"],
        ["cluster", "dead-letters"],
        ["cluster", "nats-conf"],
        ["config"],
        ["config", "serve"],
        ["config", "diff"],
        ["config", "apply"],
        ["config", "export"],
        ["doctor"],
        ["migrate", "helm-values"],
        ["gateway"],
        ["worker"],
        ["sidecar"],
        ["models"],
        ["models", "show"],
        ["models", "pin"],
        ["models", "status"],
        ["cache"],
        ["cache", "list"],
        ["cache", "pull"],
        ["cache", "verify"],
        ["cache", "prune"],
        ["plugins"],
        ["plugins", "new"],
        ["plugins", "check"],
        ["verify"],
    ):
        output = CliRunner().invoke(main, [*arguments, "--help"], prog_name="sie", terminal_width=100).output
        parts.append(f"```\n$ {' '.join(['sie', *arguments, '--help'])}\n{output.rstrip()}\n```\n")
    return "\n".join(parts)


def models() -> str:
    from sie_core.catalog import read_config

    files = sorted(DOCS.parent.glob("plugins/*/*/models/*.yaml"))
    configs = ((read_config(file), file) for file in files if "sie-fake" not in file.parts)
    found = sorted((config.id.lower(), file) for config, file in configs if config.unserved is None)
    return table(
        ("model", "answers", "size", "architecture", "limit", "prompts", "licence"), [_model(file) for _, file in found]
    )


def _model(file: Path) -> tuple[object, ...]:
    from sie_core.catalog import read_config

    config = read_config(file)
    options = config.profiles["default"].runtime
    encode = ", ".join(config.tasks.get("encode", ()))
    answers = [f"encode ({encode})"] * bool(encode) + [name for name in ("score", "extract") if name in config.tasks]
    images = "; images" if "image" in config.inputs else ""
    prompts = [letter for letter, name in (("q", "query_template"), ("d", "doc_template")) if name in options]
    architecture = config.expected.architectures if config.expected else ()
    return (
        f"[{config.id}](../../{file.relative_to(DOCS.parent).as_posix()})",
        ", ".join(answers) + images,
        ", ".join(str(dim) for each in config.tasks.get("encode", {}).values() if (dim := each.get("dim"))) or "–",
        ", ".join(architecture) or (config.expected and config.expected.model_type) or "–",
        config.max_sequence_length or "–",
        " ".join(prompts) or "–",
        config.license or "–",
    )


def parameters(postprocessor: str) -> str:
    from sie_core.catalog.options.values import kinds
    from sie_core.defaults.postprocessors import sie_postprocessors

    (found,) = (each for each in sie_postprocessors() if each.name == postprocessor)
    return table(
        ("parameter", "value", "meaning"),
        [(f"`{each.name}`", kinds(each), each.description) for each in found.parameters],
    )


def openai_codes() -> str:
    from sie_core.api.http.envelopes import OPENAI_CODES

    return table(
        ("code", "on OpenAI's routes"), [(f"`{ours}`", f"`{theirs}`") for ours, theirs in OPENAI_CODES.items()]
    )


def fields() -> str:
    from sie_core.api.fields.table import UNSERVED

    rows = sorted(UNSERVED.values(), key=lambda row: (row.refused, row.name))
    return table(
        ("field", "of", "where it is not served", "why, or what to do"),
        [(f"`{row.name}`", row.of, _unserved(row), row.why) for row in rows],
    )


def _unserved(row: Any) -> str:
    if not row.refused:
        return "ignored"
    return "refused" + (
        f", but for {', '.join(f'`{json.dumps(each)}`' for each in row.harmless)}" if row.harmless else ""
    )


def routes() -> str:
    """List the routes of other APIs: those that have their clients' tags or dialects."""
    from sie_core.api.openapi.purposes import PURPOSES
    from sie_core.api.pages.listing import IN_PATH
    from sie_core.api.paths.nearest import shown
    from sie_core.api.routes import DOCUMENTED

    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in DOCUMENTED:
        tag, path = (each.described or {}).get("tags", ["status"])[0], shown(each.path)
        if tag not in ("encode", "score", "extract", "models", "status"):
            row = PURPOSES[tag][0], each.dialect, _model_of(each, IN_PATH in path)
            groups.setdefault(row, []).append(f"`{each.methods[0]} {path}`")
    rows = [(", ".join(paths), shape, errors, model) for (shape, errors, model), paths in groups.items()]
    return table(("routes", "for clients of", "errors of", "model"), rows)


def _model_of(endpoint: Any, in_path: bool) -> str:
    if in_path:
        return "of the path; another one in the body is refused" if endpoint.infers else "of the path"
    if not endpoint.infers:
        return "–"
    field = endpoint.schemas[0].model_fields.get("model")
    return "`model` of the body" + ("" if field and field.is_required() else ", else `SIE_DEFAULT_MODEL`")


def metric_families() -> dict[str, list[Any]]:
    """List the metrics of each program, as `prometheus_client` describes them, each with its labels."""
    from prometheus_client import CollectorRegistry
    from sie_cluster.config_service.metrics import ConfigMetrics
    from sie_cluster.configs.metrics import FollowerMetrics
    from sie_cluster.gateway.capacity.admission import Admission
    from sie_cluster.gateway.capacity.numbers import CapacityNumbers
    from sie_cluster.gateway.capacity.provisioning import Provisioning
    from sie_cluster.gateway.metrics import GatewayMetrics
    from sie_cluster.sidecar.metrics import SidecarMetrics

    from sie_core.api.http.metrics import HttpMetrics
    from sie_core.engine.metrics import EngineMetrics

    http, followed = CollectorRegistry(), CollectorRegistry()
    HttpMetrics(http)
    FollowerMetrics(followed)
    numbers = CapacityNumbers(Provisioning(float), Admission(1), list, lambda: (("any",), ("default",)))
    return {
        "server, gateway, config service": _families(http),
        "server, adapter process": _families(EngineMetrics(detailed=True).registry),
        "gateway": [
            *_families(GatewayMetrics().registry),
            *((family, tuple(family.samples[0].labels)) for family in numbers.collect()),
        ],
        "gateway, sidecar": _families(followed),
        "sidecar": _families(SidecarMetrics().registry),
        "config service": _families(ConfigMetrics().registry),
    }


def _families(registry: Any) -> list[Any]:
    # No public method tells the collectors of a registry, nor the labels of one that has counted nothing yet.
    collectors = dict.fromkeys(registry._names_to_collectors.values())
    return [(family, each._labelnames) for each in collectors for family in each.describe()]


def metrics() -> str:
    rows = [
        (f"`{family.name}{'_total' if family.type == 'counter' else ''}`", family.type,
         ", ".join(f"`{label}`" for label in labels) or "–", program, family.documentation)
        for program, families in metric_families().items() for family, labels in families
    ]  # fmt: skip
    return table(("metric", "type", "labels", "of", "meaning"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "errors": errors,
    "routes": routes,
    "openai-codes": openai_codes,
    "fields": fields,
    "settings-basic": lambda: settings("basic"),
    "settings-advanced": lambda: settings("advanced"),
    "settings-cluster": lambda: settings("cluster"),
    "settings-config-service": lambda: settings("config service"),
    "plugin-settings": plugin_settings,
    "hooks": hooks,
    "interfaces": interfaces,
    "limits": limits,
    "contracts": contracts,
    "libraries": libraries,
    "checks": checks,
    "chart-values": chart_values,
    "commands": commands,
    "metrics": metrics,
    "muvera": lambda: parameters("muvera"),
    "smve": lambda: parameters("smve"),
    "models": models,
}


def render(text: str) -> str:
    """Return `text` with every generated block made anew."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match["name"]]() + match[3], text)


def made() -> dict[Path, str]:
    """Make every file anew: the pages, and the schema of the chart's values."""
    pages = {page: render(page.read_text()) for page in sorted(DOCS.glob("**/*.md"))}
    values = _beside("chart_values")
    return {**pages, values.CHART / "values.schema.json": values.of_chart().schema()}


def main() -> int:
    stale = {page: text for page, text in made().items() if text != page.read_text()}
    if "--check" not in sys.argv:
        for page, text in stale.items():
            page.write_text(text)
        return 0
    for page in stale:
        print(f"{page.relative_to(DOCS.parent)} is out of date: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
