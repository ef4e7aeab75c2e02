"""A config service over a folder, with bundles of its own and a clock that the tests set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sie_bundle.bundles.placement import Placement
from sie_bundle.bundles.reading import Bundle
from sie_cluster.config_service.results import Change
from sie_cluster.config_service.service import ConfigService
from sie_cluster.config_service.store.backups import BackupStore
from sie_cluster.config_service.store.logs import ConfigLog, ObjectLog

from sie_core.api.http.envelopes import configs_error_body
from sie_core.catalog.configs.reading import config_of
from sie_core.catalog.configs.snapshot import Catalog, make_catalog
from sie_core.contracts import InferenceError, ModelFamily, ObjectStore
from sie_core.folder_store import FolderStore
from sie_core.plugins import PluginReport, PluginSet


def placement() -> Placement:
    """Two bundles: `fast` serves the family `quick`, `slow` both `quick` and `thorough`."""
    families = {name: ModelFamily(name, f"pkg.{name}:load", lambda card: None) for name in ("quick", "thorough")}
    reports = [
        PluginReport(name, name, "1", name, "active", registers={"sie_model_families": (name,)}) for name in families
    ]
    bundles = (Bundle("fast", 1, ("quick",)), Bundle("slow", 2, ("quick", "thorough")))
    return Placement(bundles, PluginSet(reports=tuple(reports), families=families))


def base(*texts: str) -> Catalog:
    """What the service's image holds."""
    return make_catalog(1, [config_of(text.encode(), source="base", folder=Path("/image")) for text in texts])


SHIPPED = "{sie_id: org/shipped, hf_id: org/shipped, pool: L4, profiles: {default: {adapter_path: quick}}}"


def post(model_id: str, profiles: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """The body of a POST."""
    import orjson

    given = {"default": {"adapter_path": "quick"}} if profiles is None else profiles
    return orjson.dumps({"sie_id": model_id, "hf_id": model_id, "profiles": given, **fields})


def profile(family: str = "quick", **fields: Any) -> dict[str, Any]:
    return {"adapter_path": family, **fields}


def refused(call: Callable[[], Any]) -> InferenceError:
    """Return the error of a call."""
    with pytest.raises(InferenceError) as raised:
        call()
    return raised.value


def error_of(call: Callable[[], Any]) -> str:
    """Return the snake-case name of the error of a call."""
    return name_of(refused(call))


def name_of(error: InferenceError) -> str:
    """Return the name of an error that published tools read."""
    return str(configs_error_body(error)["error"]["error"])


class Told(list[Change]):
    """What was published."""

    def __call__(self, change: Change) -> None:
        self.append(change)


Start = Callable[..., ConfigService]


def log_on(store: ObjectStore) -> ConfigLog:
    """The log of a service without a broker."""
    return ObjectLog(BackupStore(store))


def service_on(log: ConfigLog, **options: Any) -> ConfigService:
    """A service that has read nothing yet."""
    return ConfigService(base(SHIPPED), placement(), log, **{"name": "one", **options})


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store", durable=False)


@pytest.fixture
def start(store: FolderStore) -> Iterator[Start]:
    """Start services that end with the test: `start(publish=…)`."""
    with ExitStack() as services:

        def run(on: ObjectStore | ObjectLog = store, **options: Any) -> ConfigService:
            made = service_on(on if isinstance(on, ObjectLog) else log_on(on), **options)
            made.read_on()
            services.callback(made.stop)
            return made

        yield run


@pytest.fixture
def service(start: Start) -> ConfigService:
    return start()
