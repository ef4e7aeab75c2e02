"""A real S3 gateway, the emulator of Azure's, a proxy before them, and the Hub of the cache's tests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import pytest
from sie_objectstore import store as module
from sie_objectstore.store import BucketStore

from tests.cache.conftest import disk, hub
from tests.objectstore import azurite as azurite_
from tests.objectstore.proxy import Faults, run_proxy
from tests.objectstore.seaweed import BUCKET, KEY, SECRET, run_s3

__all__ = ["disk", "hub"]

_prefixes = itertools.count()


def variables(url: str, scheme: str = "s3") -> dict[str, str]:
    """Name the variables that lead to a store."""
    if scheme == "az":
        where = {"AZURE_STORAGE_ENDPOINT": f"{url}/{azurite_.ACCOUNT}", "AZURE_STORAGE_ACCOUNT_NAME": azurite_.ACCOUNT}
        return {**where, "AZURE_STORAGE_ACCOUNT_KEY": azurite_.KEY}
    if scheme == "gs":
        account = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": ""}
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**account, "private_key_id": ""})}
    return {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real S3 gateway."""
    with run_s3(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the emulator of Azure's blob storage."""
    with azurite_.run_azurite(tmp_path_factory.mktemp("azurite"), BUCKET) as url:
        yield url


@pytest.fixture
def scheme() -> str:
    """The kind of store; a module may have another."""
    return "s3"


@pytest.fixture
def proxy(scheme: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """The only way to the store, and the variables that lead there."""
    with run_proxy(request.getfixturevalue("azurite" if scheme == "az" else "s3")) as faults:
        faults.unsigned = scheme == "gs"
        for name, value in variables(faults.url, scheme).items():
            monkeypatch.setenv(name, value)
        yield faults


@pytest.fixture
def bucket(scheme: str) -> str:
    """The URL of a part of the bucket that no other test has."""
    return f"{scheme}://{BUCKET}/part{next(_prefixes)}"


@pytest.fixture
def store(proxy: Faults, bucket: str) -> BucketStore:
    """A store behind the proxy."""
    return BucketStore(bucket)


Impatient = Callable[[str], BucketStore]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Impatient:
    """Make stores that ask twice in all, for tests of what comes of it and not of how often is asked."""
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    monkeypatch.setattr(module, "RETRIES", 0)
    return BucketStore
