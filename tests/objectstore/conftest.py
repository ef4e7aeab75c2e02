"""A real S3 gateway, a proxy before it, and the Hub of the cache's tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from sie_objectstore.store import BucketStore

from tests.cache.fake_hub import FakeHub, run_hub
from tests.objectstore.proxy import Faults, run_proxy
from tests.objectstore.seaweed import BUCKET, KEY, SECRET, run_s3

_prefixes = itertools.count()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real S3 gateway."""
    with run_s3(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture
def proxy(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """The only way to the gateway, and the variables of AWS that lead there."""
    with run_proxy(s3) as faults:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faults.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield faults


@pytest.fixture
def bucket() -> str:
    """The URL of a part of the bucket that no other test has."""
    return f"s3://{BUCKET}/part{next(_prefixes)}"


@pytest.fixture
def store(proxy: Faults, bucket: str) -> BucketStore:
    """A store in the gateway."""
    return BucketStore(bucket)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A Hub on a local port that has the repository `org/m`."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with run_hub() as served:
        yield served
