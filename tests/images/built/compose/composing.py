"""A Compose file brought up with the images of the tests: by podman-compose, or by docker's own command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sie_sdk import SIEClient

from tests.clients.conftest import ClientEnvironment
from tests.images.built.programs import RUNNER, run
from tests.images.built.tools import VERSION, wait_until

Vectors = NDArray[np.float32]
ADDRESS = "127.0.0.2"
"""Beside what this machine serves on its first address."""
PROJECT = "sie-test"
KILL = """
import os, signal
for each in filter(str.isdigit, os.listdir("/proc")):
    command = open(f"/proc/{each}/cmdline").read()
    if "/opt/sie/bin/sie" in command and "init.py" not in command:
        os.kill(int(each), signal.SIGKILL)
"""


@dataclass
class Composed:
    """Services of a file, which are up."""

    command: Sequence[str]
    variables: Mapping[str, str]

    def compose(self, *arguments: str) -> None:
        run(*self.command, *arguments, variables={**os.environ, **self.variables})

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        labels = {"project": PROJECT, "service": service}.items()
        filters = [part for name, value in labels for part in ("--filter", f"label=com.docker.compose.{name}={value}")]
        return run(RUNNER, "ps", "--all", "--quiet", "--no-trunc", *filters)

    def state(self, service: str) -> dict[str, Any]:
        """Return what is told of the container of a service."""
        found: list[dict[str, Any]] = json.loads(run(RUNNER, "container", "inspect", self.container(service)))
        return found[0]

    def kill(self, service: str) -> None:
        """Kill the server in a container, not the first process, which ends with it."""
        command = [RUNNER, "exec", self.container(service), "/opt/sie/bin/python", "-I", "-c", KILL]
        # The container ends, and so may this command before its status is told: the restart is what tells.
        subprocess.run(command, check=False, capture_output=True)

    def wait_for_restart(self, service: str) -> None:
        wait_until(lambda: self.state(service)["RestartCount"] == 1, f"{service} comes back")


@contextmanager
def composed(*files: Path, profiles: Sequence[str] = (), **variables: str) -> Iterator[Composed]:
    """Have the services of files up, by the images of the tests, with variables of theirs."""
    program = ("podman-compose",) if RUNNER == "podman" else ("docker", "compose")
    if shutil.which(program[0]) is None or subprocess.run([*program, "version"], check=False).returncode:
        pytest.skip(f"{' '.join(program)}: not installed (`pip install podman-compose`, or docker's plugin compose)")
    command = [*program, "-p", PROJECT]
    command += [part for file in files for part in ("-f", str(file))]
    command += [part for name in profiles for part in ("--profile", name)]
    variables |= {"IMAGE_PREFIX": "localhost/", "IMAGE_VERSION": VERSION, "BIND": ADDRESS}
    made = Composed(command, variables)
    try:
        made.compose("up", "--detach")
        yield made
    finally:
        made.compose("down", "--volumes")


def vectors_by_all_clients(url: str, model: str, published: ClientEnvironment, openai: ClientEnvironment) -> Vectors:
    """Have a text embedded by both SDKs, by OpenAI's client and by curl; return a vector a row."""
    text, body = "hello world", json.dumps({"model": model, "input": "hello world"})
    ours = encode(url, model)  # waits for the model to be loaded
    told = published.run("published_sdk.py", url=url, model=model, texts=[text])["one"]["dense"]
    (answer,) = openai.run("openai_embeddings.py", url=url, calls=[{"model": model, "input": text}])["answers"]
    written = run("curl", "-sf", f"{url}/v1/embeddings", "-H", "Content-Type: application/json", "-d", body)
    (row,) = json.loads(written)["data"]
    return np.array([ours, told, answer["vectors"][0], row["embedding"]], np.float32)


def encode(url: str, model: str) -> Vectors:
    with SIEClient(url, timeout_s=300) as client:
        dense = client.encode(model, "hello world")["dense"]
    assert dense is not None
    return np.asarray(dense)
