"""One model of every head, asked with the published `sie-sdk` 0.10.1, unchanged: it gets what our own client gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sie_sdk import SIEClient
from sie_sdk.types import Item

from sie_core.verification.pictures import png
from sie_core.verification.questions import LABELS, QUERY, TEXTS
from tests.clients.conftest import published_sdk
from tests.verification.tiny import ONE_A_HEAD

__all__ = ["published_sdk"]

PICTURE = png(40, 24)
NEWER = ("head_span", "tail_span", "truncated")
"""What the published client does not know."""

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


def calls(client: SIEClient, name: str) -> list[dict[str, Any]]:
    model = client.get_model(name)
    vectors = [output for output in model["outputs"] if output in ("dense", "sparse", "multivector")]
    operations = ["encode"] * bool(vectors) + ["score"] * ("json" not in model["outputs"])
    operations += ["extract"] * ("json" in model["outputs"])
    picture = PICTURE.hex() if "image" in model["inputs"] else ""
    base = {"model": name, "texts": TEXTS, "png": picture, "query": QUERY, "labels": LABELS, "output_types": vectors}
    return [{**base, "operation": operation} for operation in operations]


def own(client: SIEClient, call: dict[str, Any]) -> Any:
    texts = [Item(id=f"item-{place}", text=text) for place, text in enumerate(call["texts"])]
    if call["operation"] == "score":
        return client.score(call["model"], call["query"], texts)
    if call["operation"] == "extract":
        return client.extract(call["model"], texts, labels=list(call["labels"]))
    pictures = [Item(id=f"item-{len(texts)}", images=[PICTURE])] if call["png"] else []
    return client.encode(call["model"], [*texts, *pictures], output_types=call["output_types"])


def assert_same(theirs: Any, ours: Any) -> None:
    """Hold what the published client tells to what ours has, but for what it does not know."""
    if isinstance(ours, dict):
        for key, part in ours.items():
            if key not in (*NEWER, "request", "timing") and not (key not in theirs and part in ([], {})):
                assert_same(theirs.get(key), part)
    elif isinstance(ours, np.ndarray):
        np.testing.assert_allclose(np.array(theirs, dtype=np.float64), ours, atol=1e-4, rtol=1e-4)
    elif isinstance(ours, list):
        assert len(theirs) == len(ours)
        for their, our in zip(theirs, ours, strict=True):
            assert_same(their, our)
    else:
        assert theirs == (pytest.approx(ours, abs=1e-4) if isinstance(ours, float) else ours)


def test_it_gets_what_our_own_client_gets(
    published_sdk: Any, server: str, client: SIEClient, load: Callable[[str], None]
) -> None:
    for name in ONE_A_HEAD:
        load(name)
    asked = [call for name in ONE_A_HEAD for call in calls(client, name)]
    assert {call["operation"] for call in asked} == {"encode", "score", "extract"}
    told = published_sdk.run("published_heads.py", url=server, calls=asked)
    for call, theirs in zip(asked, told, strict=True):
        assert_same(theirs, own(client, call))
