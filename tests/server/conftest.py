"""Fakes that a test holds back and lets go, in a server process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

BOUND_S = 30.0


@dataclass
class HeldModel:
    """A fake model whose runs wait while `hold` exists and that writes what ran to `journal`."""

    id: str
    folder: Path
    hold: Path
    journal: Path

    def release(self) -> None:
        self.hold.unlink(missing_ok=True)


def write_held(folder: Path, runtime: str = "{}") -> HeldModel:
    """Write the config of a held model below a folder; `runtime` is YAML of its options at run time."""
    model = HeldModel("test/held", folder / "configs", folder / "hold", folder / "journal")
    model.folder.mkdir()
    (model.folder / "held.yaml").write_text(
        f"""
sie_id: {model.id}
package_backed: true
tasks: {{encode: {{dense: {{dim: 8}}}}}}
max_sequence_length: 64
profiles:
  default:
    adapter_path: fake
    max_batch_tokens: 64
    adapter_options:
      loadtime: {{run_hold: {model.hold}, journal: {model.journal}}}
      runtime: {runtime}
"""
    )
    return model


@pytest.fixture
def held_model(tmp_path: Path) -> HeldModel:
    """Write the config of a held model; give its folder to a server as `SIE_MODELS_DIR`."""
    model = write_held(tmp_path)
    model.hold.touch()
    return model


Call = Callable[..., Future[httpx.Response]]


@pytest.fixture
def call() -> Call:
    """Make a request on a thread of its own; the future gives the reply."""

    def begin(method: str, url: str, **arguments: Any) -> Future[httpx.Response]:
        future: Future[httpx.Response] = Future()

        def run() -> None:
            try:
                future.set_result(httpx.request(method, url, timeout=BOUND_S, **arguments))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    return begin
