"""A real S3 gateway, a proxy before it, and the Hub of the cache's tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from sie_objectstore import store as module
from sie_objectstore.store import BucketStore

from tests.cache.conftest import disk, hub
from tests.objectstore.proxy import Faults, run_proxy
from tests.objectstore.seaweed import BUCKET, KEY, SECRET, run_s3

__all__ = ["disk", "hub"]

_prefixes = itertools.count()


def variables(url: str) -> dict[str, str]:
    """Name the variables of AWS that lead to a gateway."""
    return {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real S3 gateway."""
    with run_s3(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture
def proxy(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """The only way to the gateway, and the variables of AWS that lead there."""
    with run_proxy(s3) as faults:
        for name, value in variables(faults.url).items():
            monkeypatch.setenv(name, value)
        yield faults


@pytest.fixture
def bucket() -> str:
    """The URL of a part of the bucket that no other test has."""
    return f"s3://{BUCKET}/part{next(_prefixes)}"


@pytest.fixture
def store(proxy: Faults, bucket: str) -> BucketStore:
    """A store in the gateway."""
    return BucketStore(bucket)


Impatient = Callable[[str], BucketStore]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Impatient:
    """Make stores that ask twice in all, for tests of what comes of it and not of how often is asked."""
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    monkeypatch.setattr(module, "RETRIES", 0)
    return BucketStore
