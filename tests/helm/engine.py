"""Helm's own engine, in an environment of its own, and what it renders of the chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.bench.operations.talking import Child, speaking
from tests.text.environments import built_environment

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/sie-cluster"
NEEDS = ("helm-python-sdk==0.2.2", "kubernetes-validate==1.37.0", "pyyaml")
Values: TypeAlias = Mapping[str, Any]
Document: TypeAlias = dict[str, Any]


class RefusedError(Exception):
    """Helm refuses the values; the message is its own."""


def helm_environment() -> Path:
    """Build the environment, and return its Python; skipped where it cannot be had."""
    return built_environment("helm", NEEDS)


class Helm:
    """A process that has Helm."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def texts(
        self,
        values: Values | None = None,
        *,
        name: str = "sie",
        namespace: str = "search",
        sets: Sequence[str] = (),
        files: Sequence[Path] = (),
    ) -> dict[str, str]:
        """Render the chart: texts by template.

        Raises:
            RefusedError: The values are refused.
        """
        answer = self._child.ask(
            what="render",
            folder=str(CHART),
            values=values or {},
            name=name,
            namespace=namespace,
            sets=list(sets),
            value_files=[str(each) for each in files],
        )
        if "error" in answer:
            raise RefusedError(answer["error"])
        found: dict[str, str] = answer["manifests"]
        return found

    def render(self, values: Values | None = None, **options: Any) -> list[Document]:
        """Render the chart: its documents, without NOTES.txt."""
        return documents(self.texts(values, **options))

    def install(self, kubeconfig: str, values: Values) -> list[Document]:
        """Give what an install of the release `sie` in `search` would make; nothing is made, but `lookup` looks.

        Raises:
            RefusedError: The values, or the install, are refused.
        """
        answer = self._child.ask(what="install", folder=str(CHART), kubeconfig=kubeconfig, values=values)
        if "error" in answer:
            raise RefusedError(answer["error"])
        return documents({"manifest": answer["manifest"]})

    def lint(self, values: Values) -> dict[str, Any]:
        """Lint the chart strictly."""
        found: dict[str, Any] = self._child.ask(what="lint", folder=str(CHART), values=values)
        return found

    def package(self, out: Path) -> Path:
        """Write the chart's archive."""
        return Path(self._child.ask(what="package", folder=str(CHART), out=str(out)))

    def push(self, archive: Path, registry: str) -> None:
        """Push the chart's archive to `oci://…`."""
        answer = self._child.ask(what="push", archive=str(archive), registry=registry)
        assert "error" not in answer, answer

    def pull(self, registry: str, version: str, out: Path) -> None:
        """Pull the chart into a folder."""
        answer = self._child.ask(what="pull", registry=registry, version=version, out=str(out))
        assert "error" not in answer, answer

    def faults(self, version: str, found: Iterable[Document]) -> list[str]:
        """List what a version of Kubernetes refuses; an unknown field too."""
        faults: list[str] = self._child.ask(what="validate", version=version, documents=list(found))
        return faults

    def custom_faults(self, schema: Document, found: Iterable[Document]) -> list[str]:
        """List what a JSON schema refuses."""
        faults: list[str] = self._child.ask(what="custom", schema=schema, documents=list(found))
        return faults


@contextmanager
def helm_running() -> Iterator[Helm]:
    """Start the process; the test is skipped where its environment cannot be had."""
    with speaking("inside", 1, package="tests.helm", python=helm_environment()) as child:
        yield Helm(child)


def documents(texts: Mapping[str, str]) -> list[Document]:
    """Read the documents of rendered texts."""
    return [
        document
        for path, text in sorted(texts.items())
        if not path.endswith("NOTES.txt")
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if document
    ]


def one(found: Iterable[Document], kind: str, name: str) -> Document:
    """Find a document."""
    (document,) = (each for each in found if each["kind"] == kind and each["metadata"]["name"] == name)
    return document


def pods(found: Iterable[Document]) -> Iterator[tuple[str, Document]]:
    """Yield the pod specs of every workload, by the workload's name."""
    for each in found:
        if "template" in each.get("spec", {}):
            yield f"{each['kind']}/{each['metadata']['name']}", each["spec"]["template"]["spec"]


def containers(found: Iterable[Document]) -> Iterator[tuple[str, Document]]:
    """Yield every container, by where it stands."""
    for where, pod in pods(found):
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield f"{where}/{container['name']}", container
