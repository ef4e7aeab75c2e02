"""Virtual environments of published clients, built once below the repository and kept until their needs change.

A client that cannot be had on this machine is a skip that says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.conftest import Server

HOME = Path(__file__).parents[2] / ".envs"
SCRIPTS = Path(__file__).parent / "scripts"
LONGEST_RUN_S = 400
"""A bound, not an expectation: on two busy cores the largest call takes more than a minute."""


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """An environment with a published client in it."""

    python: Path

    def run(self, script: str, **ask: Any) -> Any:
        """Run one of `scripts/`, which reads `ask` as JSON and answers with JSON."""
        return _answer(self._command(script), ask)

    @contextmanager
    def start(self, script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start one of `scripts/`, which reads and writes lines until it is killed."""
        command, pipe = self._command(script, *arguments), subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_variables()) as process:
            try:
                yield process
            finally:
                process.kill()

    def _command(self, script: str, *arguments: str) -> list[str]:
        return [str(self.python), "-I", str(SCRIPTS / script), *arguments]


@dataclass(frozen=True, slots=True)
class JavaScriptEnvironment:
    """A folder with published packages of npm."""

    node: Path
    folder: Path

    def run(self, script: str, **ask: Any) -> Any:
        """Run one of `scripts/`, which reads `ask` as JSON and answers with JSON."""
        copy = self.folder / script  # node looks for packages above the script
        shutil.copyfile(SCRIPTS / script, copy)
        return _answer([str(self.node), str(copy)], ask)


def _answer(command: list[str], ask: dict[str, Any]) -> Any:
    done = subprocess.run(
        command, input=json.dumps(ask), capture_output=True, text=True, timeout=LONGEST_RUN_S, env=_variables()
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SIE_")}


LONGEST_STEP_S = 600
"""Bounds one command that builds an environment, such as pip."""
CLIENTS = {
    "sie-sdk": (["sie-sdk==0.10.1"], (3, 12)),
    "openai": (["openai==3.52.0", "langchain-openai==1.7.3", "tiktoken==0.14.0"], (3, 11)),
    "other-apis": (
        [
            "cohere==7.3.1",
            "haystack-ai==3.4.0",
            "huggingface-api-haystack==3.1.0",
            "huggingface-hub==2.4.0",
            "llama-index-embeddings-text-embeddings-inference==0.6.0",
        ],
        (3, 11),
    ),
    "litellm": (["litellm==1.105.0"], (3, 11)),
    "integrations": (
        [
            "chromadb==1.5.9",
            "haystack-ai==3.4.1",
            "lancedb==0.40.0",
            "langchain-core==1.7.7",
            "langchain-qdrant==1.1.0",
            "langchain-tests==1.1.9",
            "llama-index-core==0.14.25",
            "qdrant-client==1.20.0",
            *("httpcore>=1", "httpx>=0.27", "msgpack>=1.1", "numpy>=1.26"),  # what sie-sdk needs
        ],
        (3, 11),
    ),
    "lancedb": (["lancedb==0.40.0", "openai==3.52.0", "sie-sdk==0.10.1"], (3, 12)),
    "published-integrations": (
        [
            f"sie-{each}==0.10.1"
            for each in ("langchain", "llamaindex", "haystack", "chroma", "lancedb", "qdrant", "weaviate", "dspy")
        ],
        (3, 12),
    ),
    "frameworks": (
        [
            "dspy==3.4.1",
            "jina-haystack==2.0.1",
            "langchain-cohere==0.6.0",
            "llama-index-embeddings-openai==0.7.0",
            "mem0ai==2.2.1",
            "torch<=2.13.0",  # of txtai
            "txtai==9.14.0",
        ],
        (3, 11),
    ),
    "framework-stores": (
        [
            "chroma-haystack==5.0.0",
            "langchain-chroma==1.1.0",
            "langchain-lancedb==0.1.0",
            "llama-index-vector-stores-chroma==0.6.0",
            "llama-index-vector-stores-lancedb==0.6.0",
            "llama-index-vector-stores-qdrant==0.10.4",
            "pandas==3.1.1",  # of LlamaIndex's LanceDB
            "pytest==9.2.0",
            "qdrant-haystack==13.1.0",
            *("httpcore>=1", "httpx>=0.27", "msgpack>=1.1", "numpy>=1.26"),  # what sie-sdk needs
        ],
        (3, 11),
    ),
    "databases": (
        [
            "milvus-lite==3.2.2",
            "pgserver==0.1.4",
            "pgvector==0.5.1",
            "psycopg[binary]==3.3.9",
            "pymilvus==3.0.2",
            *("httpcore>=1", "httpx>=0.27", "msgpack>=1.1", "numpy>=1.26"),  # what sie-sdk needs
        ],
        (3, 11),
    ),
}
"""Environments by name: what pip installs, and the least version of Python."""
WITH_EVERY_ROW = ("published-integrations", "frameworks", "framework-stores", "databases")
"""Those of tests that `EVERY_ROW=1` has run: large, and not built ahead."""


@pytest.fixture(scope="session")
def published_sdk() -> ClientEnvironment:
    """The published client of the system whose wire contract this server keeps."""
    return client_environment("sie-sdk")


@pytest.fixture(scope="session")
def openai_clients() -> ClientEnvironment:
    """OpenAI's own client, and LangChain's embeddings on top of it."""
    return client_environment("openai")


@pytest.fixture(scope="session")
def other_apis() -> ClientEnvironment:
    """Cohere's own client, and clients of text-embeddings-inference: LlamaIndex, Haystack, the Hub's own."""
    return client_environment("other-apis")


@pytest.fixture(scope="session")
def litellm_client() -> ClientEnvironment:
    """litellm, which speaks to many servers by the name of a provider."""
    return client_environment("litellm")


@pytest.fixture(scope="session")
def lancedb_client() -> ClientEnvironment:
    """LanceDB with what its registry embeds by: OpenAI's client, and the published SDK."""
    return client_environment("lancedb")


@pytest.fixture(scope="session")
def langchain_js() -> JavaScriptEnvironment:
    """LangChain's client for Cohere, in JavaScript."""
    return javascript_environment("langchain-js")


@pytest.fixture(scope="session")
def javascript_clients() -> JavaScriptEnvironment:
    """Cohere's own client, the providers of Vercel's AI SDK and the Hub's client, in JavaScript."""
    return javascript_environment("javascript")


PACKAGES = {
    "langchain-js": ["@langchain/cohere@1.0.5", "@langchain/core@1.4.0"],
    "javascript": [
        # The newest for Node.js 20; later ones of the first two need 22.
        "@ai-sdk/cohere@3.0.63",
        "@ai-sdk/openai-compatible@2.0.92",
        "@huggingface/inference@4.13.30",
        "cohere-ai@8.1.0",
    ],
}
"""Environments of JavaScript by name: what npm installs."""


def javascript_environment(name: str) -> JavaScriptEnvironment:
    """Build the folder of an environment of `PACKAGES` where it is not there, or skip."""
    packages = PACKAGES[name]
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not on this machine")
    folder = HOME / name
    with _built(name, [node, *packages]) as missing:
        if missing:
            folder.mkdir()
            (folder / "package.json").write_text('{"private": true}')
            _or_skip(name, npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", *packages)
    return JavaScriptEnvironment(Path(node), folder)


def client_environment(name: str) -> ClientEnvironment:
    """Build an environment of `CLIENTS` where it is not there, or skip."""
    requirements, least = CLIENTS[name]
    if "NEWEST" in os.environ:
        requirements, name = [each.partition("==")[0] for each in requirements], f"{name}-newest"
    folder = HOME / name
    with _built(name, (requirements, least)) as missing:
        if missing:
            python = _interpreter(least)
            _or_skip(name, python, "-m", "venv", "--without-pip", str(folder))
            # A pip of its own, and compiling what no test imports, would take most of the time.
            install = (sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install")
            _or_skip(name, *install, "-q", "--no-compile", *requirements)
    return ClientEnvironment(folder / "bin/python")


@contextmanager
def _built(name: str, needs: object) -> Iterator[bool]:
    """Say whether an environment is to be built, its folder being removed; after the block it counts as built."""
    folder = HOME / name
    stamp = folder / ".requirements"
    digest = hashlib.sha256(repr(needs).encode()).hexdigest()
    HOME.mkdir(exist_ok=True)
    with FileLock(HOME / f"{name}.lock"):
        if stamp.exists() and stamp.read_text() == digest:
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        yield True
        stamp.write_text(digest)


def _interpreter(least: tuple[int, int]) -> str:
    """Find a Python by running the candidates: a version manager's shim may exist and yet fail."""
    probe = f"import sys; print(sys.executable); sys.exit(sys.version_info < {least})"
    for candidate in _candidates(least):
        try:
            tried = subprocess.run([candidate, "-I", "-c", probe], capture_output=True, text=True, timeout=30)
        except OSError:
            continue
        if tried.returncode == 0:
            return tried.stdout.strip()
    pytest.skip(f"no Python {least[0]}.{least[1]} or newer runs on this machine")


def _candidates(least: tuple[int, int]) -> Iterator[str]:
    yield from (f"python3.{minor}" for minor in range(least[1], 20))
    yield "python3"
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(str(path) for path in root.glob("versions/3.*/bin/python"))


def _or_skip(name: str, *command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_STEP_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the environment of {name} was not built in {LONGEST_STEP_S} s ({' '.join(command[1:4])})")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word of why"])[-1]
        pytest.skip(f"the environment of {name} cannot be built ({' '.join(command[1:4])}): {last}")


@pytest.fixture(scope="session", params=["fake_server", "cluster_server", "front_ends_server"])
def served_fakes(request: pytest.FixtureRequest) -> str:
    """The URL of the fakes: of one server, of a cluster, and of a server with front ends."""
    served: str | Server = request.getfixturevalue(request.param)
    return served if isinstance(served, str) else served.url
