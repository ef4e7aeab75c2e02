"""Stores of every kind: objects of every size, faults on the way, errors with a remedy.

`s3://` is a real S3 gateway, `az://` Microsoft's emulator. Google's emulators speak another protocol than its XML API,
which is S3's but for signatures: `gs://` asks the S3 gateway, unsigned.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sie_objectstore.failures import ENDPOINTS
from sie_objectstore.plugin import SCHEMES, sie_object_stores
from sie_objectstore.store import RANGE, BucketStore

from sie_core.contracts import ObjectStoreError
from tests.objectstore.conftest import Impatient
from tests.objectstore.proxy import Faults

LARGE = os.urandom(2 * RANGE + 12_345)


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    """Every kind of store there is."""
    return str(request.param)


def download(store: BucketStore, key: str, size: int, folder: Path) -> bytes:
    seen: list[int] = []
    store.download(key, folder / "file", size, seen.append)
    assert sum(seen) == size
    return (folder / "file").read_bytes()


def refusal(call: object) -> ObjectStoreError:
    with pytest.raises(ObjectStoreError) as raised:
        call()  # type: ignore[operator]
    assert "127.0.0.1" not in str(raised.value)
    return raised.value


def test_objects_are_written_read_listed_and_removed(store: BucketStore) -> None:
    store.write("a/one", b"1")
    store.write("a/one", b"12")
    store.write("a/b/two", b"2")
    store.write("ab", b"3")
    assert store.read("a/one") == b"12"
    assert {each.key: each.size for each in store.list("a")} == {"a/one": 2, "a/b/two": 1}
    assert {each.key for each in store.list("")} == {"a/one", "a/b/two", "ab"}
    assert {each.key: each.size for each in store.list("", below=False)} == {"ab": 1}
    assert {each.key for each in store.list("a", below=False)} == {"a/one"}
    (before,) = (each.version for each in store.list("a/b"))
    store.write("a/b/two", b"new")
    assert [each.version for each in store.list("a/b")] != [before]
    store.delete("a/one")
    store.delete("a/one")
    assert store.size("a/one") is None
    assert store.size("ab") == 1


@pytest.mark.parametrize("content", [b"", b"x", LARGE], ids=["empty", "one byte", "three ranges"])
def test_files_go_there_and_come_back(store: BucketStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "given").write_bytes(content)
    store.upload("file", tmp_path / "given")
    assert download(store, "file", len(content), tmp_path) == content


def test_a_large_object_is_read_in_ranges(store: BucketStore, proxy: Faults, tmp_path: Path) -> None:
    store.write("large", LARGE)
    proxy.asked.clear()
    assert download(store, "large", len(LARGE), tmp_path) == LARGE
    assert sorted(asked.rpartition("bytes=")[2] for asked in proxy.asked if "bytes=" in asked) == sorted(
        [f"0-{RANGE - 1}", f"{RANGE}-{2 * RANGE - 1}", f"{2 * RANGE}-{len(LARGE) - 1}"]
    )


def test_half_of_the_requests_may_fail(store: BucketStore, proxy: Faults, tmp_path: Path) -> None:
    proxy.every_other_fails = True
    (tmp_path / "given").write_bytes(LARGE)
    store.upload("file", tmp_path / "given")
    assert download(store, "file", len(LARGE), tmp_path) == LARGE
    assert [each.key for each in store.list("")] == ["file"]
    assert proxy.failed >= 4


def test_an_answer_that_breaks_off_is_asked_for_again(store: BucketStore, proxy: Faults, tmp_path: Path) -> None:
    store.write("large", LARGE)
    proxy.cut_firsts = True
    assert download(store, "large", len(LARGE), tmp_path) == LARGE
    assert len(proxy.broken_off) == 1


def test_answers_that_always_break_off_are_given_up(
    store: BucketStore, proxy: Faults, tmp_path: Path, impatient: Impatient
) -> None:
    content = bytes(4096)
    store.write("cut", content)
    proxy.cut = True
    error = refusal(lambda: download(impatient(store.url), "cut", len(content), tmp_path))
    assert error.failure == "UNAVAILABLE"
    assert len(proxy.broken_off) == 2


def test_a_store_that_is_gone_is_unavailable_and_works_when_it_returns(
    proxy: Faults, bucket: str, scheme: str, impatient: Impatient
) -> None:
    store = impatient(bucket)
    store.write("a", b"1")
    proxy.gone = True
    error = refusal(lambda: store.read("a"))
    assert error.failure == "UNAVAILABLE"
    assert f"check the endpoint{ENDPOINTS[scheme]}" in str(error)
    proxy.gone = False
    assert store.read("a") == b"1"


@pytest.mark.parametrize(
    ("scheme", "secret", "named"),
    [
        ("s3", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        ("az", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_wrong_credentials_are_refused_at_once_and_the_variables_named(
    proxy: Faults, bucket: str, monkeypatch: pytest.MonkeyPatch, secret: str, named: str
) -> None:
    monkeypatch.setenv(secret, "wrongkey")
    error = refusal(lambda: BucketStore(bucket).read("a"))
    assert error.failure == "DENIED"
    assert named in str(error)
    assert "wrongkey" not in str(error)
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("scheme", ["az"])
def test_a_container_that_is_not_there_is_named(proxy: Faults, scheme: str) -> None:
    store = BucketStore("az://none")
    for ask in (lambda: list(store.list("")), lambda: store.write("a", b"1")):
        assert str(refusal(ask)) == "az://none is not there: check the bucket's name"


def test_an_object_that_is_not_there_or_of_another_size_is_not_found(store: BucketStore, tmp_path: Path) -> None:
    assert refusal(lambda: store.read("none")).failure == "NOT_FOUND"
    store.write("a", b"123")
    assert refusal(lambda: store.download("a", tmp_path / "f", 4, lambda _: None)).failure == "NOT_FOUND"


def test_a_file_that_cannot_be_written_is_the_callers_affair(store: BucketStore, tmp_path: Path) -> None:
    store.write("a", b"1")
    with pytest.raises(FileNotFoundError) as raised:
        store.download("a", tmp_path / "none" / "f", 1, lambda _: None)
    assert raised.value.errno is not None


def test_the_scheme_of_a_url_has_its_store(proxy: Faults, scheme: str, bucket: str) -> None:
    (factory,) = (each for each in sie_object_stores() if each.scheme == scheme)
    assert factory.create(f"{bucket}/").url == bucket


@pytest.mark.parametrize("url", ["s3://", "az://container/prefix"])
def test_a_url_that_cannot_be_used_is_a_value_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match=r"\w+"):
        BucketStore(url)
