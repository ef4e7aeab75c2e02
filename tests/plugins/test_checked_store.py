"""A plugin's object store that raises or returns junk: a failure of the store, typed, and its text goes to the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sie_core.contracts import ObjectStoreError, ObjectStoreFactory, PluginError, StoredObject, VersionedObject
from sie_core.plugins.object_stores import CheckedStore, open_store


class Odd:
    """A store that does one thing, whatever it is asked."""

    url = "odd://bucket"

    def __init__(self, act: Any) -> None:
        self._act = act

    def _do(self, *_: Any, **__: Any) -> Any:
        if isinstance(self._act, Exception):
            raise self._act
        return self._act

    read = write = read_version = create = replace = download = upload = size = list = delete = _do


CALLS = {
    "read": lambda store: store.read("a"),
    "write": lambda store: store.write("a", b""),
    "read_version": lambda store: store.read_version("a"),
    "create": lambda store: store.create("a", b""),
    "replace": lambda store: store.replace("a", b"", "v"),
    "download": lambda store: store.download("a", Path("a"), 1, print),
    "upload": lambda store: store.upload("a", Path("a")),
    "size": lambda store: store.size("a"),
    "list": lambda store: list(store.list("a")),
    "delete": lambda store: store.delete("a"),
}


@pytest.mark.parametrize("method", CALLS)
def test_what_it_raises_beyond_its_contract_is_its_failure(method: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        ObjectStoreError, match=rf"odd://bucket: its plugin failed in `{method}` \(KeyError\)"
    ) as raised:
        CALLS[method](CheckedStore(Odd(KeyError("secret"))))
    assert raised.value.failure == "UNAVAILABLE"
    assert "secret" not in str(raised.value)
    assert "secret" in caplog.text


@pytest.mark.parametrize("method", CALLS)
def test_its_own_errors_pass(method: str) -> None:
    with pytest.raises(ObjectStoreError, match="gone"):
        CALLS[method](CheckedStore(Odd(ObjectStoreError("NOT_FOUND", "gone"))))


@pytest.mark.parametrize(
    ("method", "junk"),
    [
        ("read", None),
        ("read", "text"),
        ("read_version", b"x"),
        ("create", None),
        ("replace", 3),
        ("list", 3),
        ("list", ["a"]),
    ],
)
def test_junk_is_its_failure_too(method: str, junk: Any) -> None:
    with pytest.raises(ObjectStoreError):
        CALLS[method](CheckedStore(Odd(junk)))


def test_what_it_may_answer_passes() -> None:
    stored = StoredObject("a", 1, "v")
    assert CheckedStore(Odd(b"x")).read("a") == b"x"
    assert list(CheckedStore(Odd([stored])).list("")) == [stored]
    versioned = VersionedObject(b"x", "v")
    assert CheckedStore(Odd(versioned)).read_version("a") == versioned
    assert CheckedStore(Odd("v")).create("a", b"x") == CheckedStore(Odd("v")).replace("a", b"x", "u") == "v"


@pytest.mark.parametrize("create", [lambda url: {}["a"], lambda url: None, lambda url: 3])
def test_a_store_that_cannot_be_made_names_the_setting_and_the_scheme(create: Any) -> None:
    with pytest.raises(PluginError, match="SIE_MODELS_DIR='odd://a' cannot be used: the plugin that serves odd://"):
        open_store("SIE_MODELS_DIR", "odd://a", {"odd": ObjectStoreFactory("odd", create)})


def test_a_store_whose_method_lacks_a_parameter_is_refused_with_it():
    class Older(Odd):
        def list(self, prefix: str) -> Any:
            return iter(())

    with pytest.raises(PluginError, match=r"its `list` lacks the parameter 'below'"):
        open_store("SIE_X", "odd://bucket", {"odd": ObjectStoreFactory("odd", lambda url: Older(None))})
