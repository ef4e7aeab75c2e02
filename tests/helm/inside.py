"""Runs in the environment that has Helm's library and Kubernetes' schemas: renders charts, and validates manifests."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import yaml
from referencing import Registry, Resource

from tests.bench.operations.talking import Orders


@cache
def chart(folder: str) -> helm_python.Chart:
    return helm_python.Chart.load(folder)


def render(
    folder: str, values: dict[str, Any], name: str, namespace: str, sets: list[str], value_files: list[str]
) -> dict[str, str]:
    """Render as `helm template -f FILE --set SET` does, files first."""
    merged: dict[str, Any] = {}
    parts = [yaml.safe_load(Path(file).read_text()) for file in value_files]
    for part in (*parts, *(helm_python.parse_set_string(each) for each in sets), values):
        merged = over(merged, part)
    helm_python.validate_release_name(name)
    manifests = chart(folder).render(merged, name=name, namespace=namespace, is_install=True)
    return {path: text for path, text in manifests.items() if text.strip()}


def over(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        merged[key] = over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


@cache
def definitions(version: str) -> Any:
    return json.loads((schemas(version) / "_definitions.json").read_text())


def schemas(version: str) -> Any:
    return files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"


@cache
def validator(version: str, kind: str, api: str) -> jsonschema.Draft202012Validator | None:
    """Make the strict one of a kind; None where that version of Kubernetes has no such kind."""
    group, _, of = api.rpartition("/")
    name = "-".join(filter(None, (group.partition(".")[0], of)))
    file = schemas(version) / f"{kind.lower()}-{name}.json"
    if not file.is_file():
        return None
    registry = Registry().with_resources([("", Resource.from_contents(definitions(version)))])
    registry = Resource.from_contents(definitions(version)) @ registry
    return jsonschema.Draft202012Validator(json.loads(file.read_text()), registry=registry)


def faults(version: str, document: dict[str, Any]) -> list[str]:
    found = validator(version, document["kind"], document["apiVersion"])
    where = f"{version} {document['kind']}/{document['metadata']['name']}"
    if found is None:
        return [f"{where}: {document['apiVersion']} is unknown"]
    return [f"{where} {error.json_path}: {error.message[:300]}" for error in found.iter_errors(document)]


def answer(order: dict[str, Any]) -> Any:
    what = order.pop("what")
    try:
        if what == "render":
            return {"manifests": render(**order)}
        if what == "lint":
            return helm_python.lint(order["folder"], order["values"], strict=True)
        if what == "install":
            with helm_python.Config(
                kubeconfig_content=order["kubeconfig"], namespace="search", storage_driver="memory"
            ) as config:
                return {
                    "manifest": config.install(order["folder"], "sie", order["values"], dry_run="server")["manifest"]
                }
        if what == "package":
            return helm_python.package(order["folder"], destination=order["out"])
        if what == "push":
            return helm_python.push(order["archive"], order["registry"], plain_http=True)
        if what == "pull":
            return helm_python.pull(
                f"{order['registry']}/sie-cluster",
                version=order["version"],
                destination=order["out"],
                plain_http=True,
            )
        if what == "custom":
            checker = jsonschema.Draft202012Validator(order["schema"])
            found = (error for document in order["documents"] for error in checker.iter_errors(document))
            return [f"{error.json_path}: {error.message[:300]}" for error in found]
        return [fault for document in order["documents"] for fault in faults(order["version"], document)]
    except helm_python.HelmError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    orders = Orders()
    for each in orders:
        orders.answer(answer(each))
