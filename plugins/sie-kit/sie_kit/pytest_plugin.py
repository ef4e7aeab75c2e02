"""The pytest plugin of the author's kit: fixtures, loaded into every pytest session of an environment with sie-core.

So it imports nothing of the engine before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sie_kit.loading import LoadedModel
    from sie_kit.server import Served


@pytest.fixture
def sie_model() -> Iterator[Callable[[str], LoadedModel]]:
    """Load a model by id, without an engine: `sie_model("acme/letters").adapter`. Unloaded after the test."""
    from sie_core.defaults import BUILTINS
    from sie_core.plugins import discover
    from sie_core.settings import load_settings
    from sie_kit.loading import load_model

    settings = load_settings()
    plugins = discover(settings, BUILTINS)
    with ExitStack() as stack:

        def load(model: str, device: str = "cpu") -> LoadedModel:
            loaded = load_model(model, plugins, settings, device)
            stack.callback(loaded.adapter.unload)
            return loaded

        yield load


@pytest.fixture
def sie_server() -> Iterator[Callable[..., Served]]:
    """Serve the installed plugins' models over HTTP: `sie_server(preload_models="acme/letters").url`.

    Takes settings by their field; the server stops after the test.
    """
    from sie_kit.server import serving

    with ExitStack() as stack:

        def serve(**settings: Any) -> Served:
            return stack.enter_context(serving(**settings))

        yield serve
