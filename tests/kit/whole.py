"""`python -m tests.kit.whole [KIND…]`: every kind of new plugin is made, installed, checked, served and asked.

Then its own formatter, types and tests run. Prints the seconds of each step and ends at the first that fails; without
a network.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from sie_kit.cli.projects import KINDS, make

from tests.plugins.outside import SIE, environment, pip, server

ITEM = {"items": [{"text": "hello world"}]}
CACHE = Path(tempfile.gettempdir()) / "sie-kit-mypy"
"""What mypy knows of the core and its libraries, which it reads once for all kinds."""
TINY = ("architecture", "head", "runner")
"""Kinds that write a small checkpoint to serve."""


def variables(kind: str, site: Path) -> dict[str, str]:
    """Make the environment that turns a plugin on."""
    name = f"new-{kind}"
    chosen = {
        "memory": {"SIE_MEMORY_MANAGER": name},
        "queue": {"SIE_NATS_URL": f"{name}://cluster"},
        "runner": {"SIE_RUNNER": name},
        "scheduler": {"SIE_SCHEDULER": name},
        "store": {"SIE_PAYLOAD_STORE_URL": f"{name}://bucket"},
        "tier": {"SIE_NEW_TIER_ROOT": str(site)},
    }
    return environment(site, SIE_MODELS_DIR="models" if kind in TINY else "", **chosen.get(kind, {}))


def step(told: str, command: list[object], folder: Path, environ: dict[str, str]) -> None:
    started = time.monotonic()
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environ, capture_output=True, text=True, timeout=600)
    print(f"    {told}: {'done' if not done.returncode else 'FAILED'} ({time.monotonic() - started:.0f} s)", flush=True)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])


def ask(kind: str, folder: Path, environ: dict[str, str]) -> None:
    """Serve the plugin and ask a model of it, or by it."""
    started = time.monotonic()
    model = "acme/tiny" if kind in TINY else f"acme/new-{kind}"
    if kind not in (*TINY, "family", "static", "weights"):
        model = "sie-fake/tokens" if kind == "postprocessor" else "sie-fake/embedder"
    operation = "extract" if kind == "head" else "encode"
    body = {**ITEM, "params": {"options": {"new_postprocessor": True}}} if kind == "postprocessor" else ITEM
    if kind == "queue":
        with server([], folder, environ, command="gateway") as url:
            answer = httpx.get(f"{url}/healthz", timeout=60)
    else:
        with server(["--preload", model], folder, environ) as url:
            answer = httpx.post(f"{url}/v1/{operation}/{model}", json=body, timeout=60)
    print(f"    serve and ask: {answer.status_code} ({time.monotonic() - started:.0f} s)", flush=True)
    answer.raise_for_status()


def main() -> None:
    python = sys.executable
    for kind in sys.argv[1:] or KINDS:
        print(kind, flush=True)
        with tempfile.TemporaryDirectory() as made:
            folder, site = Path(made), Path(made) / "site"
            project, environ = make(f"new-{kind}", kind, folder), variables(kind, site)
            started = time.monotonic()
            pip("install", "--no-build-isolation", "--target", site, project)
            print(f"    new and install: done ({time.monotonic() - started:.0f} s)", flush=True)
            options = ["--store-url", f"new-{kind}://conformance"] if kind == "store" else []
            if kind in TINY:
                step("checkpoint", [python, project / "tests/checkpoint.py", "models/acme/tiny"], folder, environ)
                options = ["--models-dir", "models"]
            step("check", [SIE, "plugins", "check", f"sie-new-{kind}", *options], folder, environ)
            ask(kind, folder, environ)
            package = next(project.glob("sie_*")).name
            step("ruff", [python, "-m", "ruff", "check", "--no-cache", "."], project, environ)
            step("mypy --strict", [python, "-m", "mypy", "--cache-dir", CACHE, package, "tests"], project, environ)
            step("pytest", [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"], project, environ)


if __name__ == "__main__":
    main()
