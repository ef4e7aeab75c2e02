"""Turns rendered manifests into processes: each container's command, variables, files, ports and probes.

A volume is a folder, and a path below its mount is one below that folder. Where pods have no network of their own, a
port is a free one of this machine, a Service is the first of its pods, and a pod of a StatefulSet is found by its name.
"""

from __future__ import annotations

import re
import shutil
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helm.engine import Document

COMPONENT = "app.kubernetes.io/component"
HOST = "127.0.0.1"
PROGRAMS = {"sie-gateway": "sie", "sie-server": "sie", "nats": "nats-server"}
"""What runs first in an image."""
OF_IMAGE = {"SIE_HTTP_HOST": "0.0.0.0", "HF_HOME": "/cache", "SIE_LOCAL_CACHE": "/cache"}
"""What every image of this project sets."""
PORTS = {"http": "SIE_HTTP_PORT", "probes": "SIE_HTTP_PORT", "metrics": "SIE_WORKER_METRICS_PORT"}
"""The variables that say where a program listens, where it would listen on the container's port."""


@dataclass
class Container:
    """A container of one pod, as a process of this machine."""

    name: str
    component: str
    command: list[str]
    env: dict[str, str]
    host: str
    ports: dict[str, int]
    spec: Document
    grace_s: float
    folder: Path
    within: Sequence[str] = ()
    """What its commands begin with."""

    def command_of(self, kind: str) -> list[str]:
        """Return the command of a probe; an empty one where it asks a URL."""
        if "exec" not in self.spec[kind]:
            return []
        ports = {port["containerPort"]: self.ports[port["name"]] for port in self.spec["ports"]}
        program, *words = self.spec[kind]["exec"]["command"]
        assert program == "/opt/sie/bin/python"
        there = [
            re.sub(r"(127\.0\.0\.1:)(\d+)", lambda match: f"{match[1]}{ports[int(match[2])]}", word) for word in words
        ]
        return [*self.within, sys.executable, *there]

    def probe(self, kind: str) -> str:
        """Return the URL that a probe asks."""
        asked = self.spec[kind]["httpGet"]
        return f"http://{self.host}:{self.ports[asked['port']]}{asked['path']}"


@dataclass
class Pod:
    """A pod: its name, the component that selectors know it by, and its spec."""

    name: str
    labels: dict[str, str]
    spec: Document
    claims: list[str]
    host: str = HOST
    ports: dict[int, int] = field(default_factory=dict)
    """Where it listens, by the containers' ports."""
    within: Sequence[str] = ()
    """What its commands begin with."""

    @property
    def component(self) -> str:
        """The part of the cluster it belongs to."""
        return self.labels[COMPONENT]

    def port(self, name: str | int) -> int:
        """Find a container's port by its name."""
        (port,) = {
            port["containerPort"] for of in self.spec["containers"] for port in of["ports"] if port["name"] == name
        }
        return int(port)


def pods_of(found: list[Document]) -> list[Pod]:
    """List the pods of every workload; each says how many it has."""
    return [
        Pod(
            f"{each['metadata']['name']}-{number}",
            each["spec"]["template"]["metadata"]["labels"],
            each["spec"]["template"]["spec"],
            [claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", ())],
        )
        for each in found
        if each["kind"] in ("Deployment", "StatefulSet")
        for number in range(each["spec"]["replicas"])
    ]


def addresses(found: list[Document], pods: list[Pod]) -> dict[str, str]:
    """Say where each name and port of the cluster is on this machine."""
    known: dict[str, str] = {}
    for service in (each for each in found if each["kind"] == "Service"):
        name, selector = service["metadata"]["name"], service["spec"]["selector"]
        behind = [pod for pod in pods if selector.items() <= pod.labels.items()]
        for port in service["spec"]["ports"]:
            for pod in behind:
                target = pod.ports[pod.port(port["targetPort"])]
                known.setdefault(f"{name}:{port['port']}", f"{HOST}:{target}")
                known[f"{pod.name}.{name}:{port['port']}"] = f"{HOST}:{target}"
    return known


def containers_of(pod: Pod, found: list[Document], known: Mapping[str, str], folder: Path) -> Iterator[Container]:
    """Write a pod's files, and yield its containers."""
    volumes = _volumes(pod, found, folder)
    for spec in pod.spec["containers"]:
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in spec["volumeMounts"]}
        program = PROGRAMS[spec["image"].rpartition("/")[2].partition(":")[0]]
        own = Path(sys.executable).parent / program
        first = str(own) if own.exists() else shutil.which(program) or program

        moved = dict(known) | {path: str(at) for path, at in mounts.items()}
        names = re.compile(rf"(?<![\w/.-])({'|'.join(map(re.escape, sorted(moved, key=len, reverse=True)))})(?![\w-])")

        def here(text: str, names: re.Pattern[str] = names, moved: Mapping[str, str] = moved) -> str:
            return names.sub(lambda match: moved[match[1]], text.replace("//", "// ")).replace("// ", "//")

        for file in set(mounts.values()):
            for each in file.glob("*.conf"):
                each.write_text(_with_ports(here(each.read_text()), pod))
        env = {name: here(value) for name, value in _variables(pod, spec, found).items()}
        ports = {port["name"]: pod.ports[port["containerPort"]] for port in spec["ports"]}
        if program == "sie" and not pod.within:
            env |= {"SIE_HTTP_HOST": HOST} | {PORTS[name]: str(port) for name, port in ports.items()}
        yield Container(
            f"{pod.name}/{spec['name']}",
            pod.component,
            [*pod.within, first, *(here(each) for each in spec["args"])],
            env,
            pod.host,
            ports,
            spec,
            pod.spec["terminationGracePeriodSeconds"],
            folder,
            pod.within,
        )


def _with_ports(conf: str, pod: Pod) -> str:
    """Have a broker listen where its pod does."""
    for port, here in pod.ports.items():
        conf = re.sub(rf"port: {port}\b", f"port: {here}", conf)
    return conf if pod.within else f'host: "{HOST}"\n{conf}'


def _volumes(pod: Pod, found: list[Document], folder: Path) -> dict[str, Path]:
    volumes = {}
    for volume in (*pod.spec.get("volumes", ()), *({"name": claim} for claim in pod.claims)):
        at = folder / volume["name"]
        at.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            data = _data(found, "Secret", volume["secret"]["secretName"])
            for item in volume["secret"]["items"]:
                (at / item["path"]).write_text(data[item["key"]])
        if "configMap" in volume:
            for name, text in _data(found, "ConfigMap", volume["configMap"]["name"]).items():
                (at / name).write_text(text)
        volumes[volume["name"]] = at
    return volumes


def _data(found: list[Document], kind: str, name: str) -> dict[str, str]:
    (data,) = (each["data"] for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return {key: b64decode(value).decode() if kind == "Secret" else value for key, value in data.items()}


def _variables(pod: Pod, spec: Document, found: list[Document]) -> dict[str, str]:
    """Make a container's variables as Kubernetes does: later ones win, and may name earlier ones."""
    env = dict(OF_IMAGE)
    for source in spec.get("envFrom", ()):
        env |= _data(found, "ConfigMap", source["configMapRef"]["name"])
    for each in spec.get("env", ()):
        env[each["name"]] = _value(each, pod, found)
        env[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], env[each["name"]])
    return env


def _value(each: Mapping[str, Any], pod: Pod, found: list[Document]) -> str:
    if "value" in each:
        return str(each["value"])
    if "fieldRef" in each["valueFrom"]:
        assert each["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name"}
        return pod.name
    of = each["valueFrom"]["secretKeyRef"]
    return _data(found, "Secret", of["name"])[of["key"]]
