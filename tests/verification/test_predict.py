"""TEI's routes give the classes of the reference, by its names and with its scores."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sie_kit.server import Served

from sie_core.contracts import Item, ItemOutput, Task
from sie_core.verification.differences import difference
from sie_core.verification.verifying import TOLERANCES
from tests.verification.conftest import Verified, Verify
from tests.verification.over_http import extracted
from tests.verification.tiny import CLASSES

NUMBERS = {name: number for number, name in CLASSES.items()}


@pytest.fixture(scope="module", params=["bert", "qwen3", "deberta-v2", "each-by-itself", "numbers"])
def model(request: pytest.FixtureRequest, verified: Verify) -> Verified:
    return verified(f"tiny/classes-{request.param}")


def predict(server: Served, model: str, texts: list[str], **body: Any) -> list[ItemOutput]:
    inputs = {"inputs": [[text] for text in texts], **body}
    told = httpx.post(f"{server.url}/tei/{model}/predict", json=inputs, timeout=60).raise_for_status().json()
    return [extracted({"entities": [], "relations": [], "classifications": classes}) for classes in told]


def assert_equal(found: list[ItemOutput], expected: list[ItemOutput]) -> None:
    apart = difference("classifications", found, expected)
    assert apart.numbers == len(found) * len(CLASSES)
    assert apart.deviation <= TOLERANCES["float32"], apart.note
    for one, other in zip(found, expected, strict=True):
        assert [each.label for each in one.classifications or ()] == [
            each.label for each in other.classifications or ()
        ]


def test_predict_gives_the_classes_of_the_reference(model: Verified, server: Served) -> None:
    question = model.served.answers[0].question
    name, expected = model.references.answer(question, "classifications")
    assert name == "text-classification"
    assert_equal(predict(server, model.report.model, [str(each.text) for each in question.items]), list(expected))


@pytest.mark.parametrize(
    ("body", "activation"),
    [
        ({"raw_scores": True}, "identity"),
        ({"parameters": {"function_to_apply": "none"}}, "identity"),
        ({"parameters": {"function_to_apply": "sigmoid"}}, "sigmoid"),
        ({"parameters": {"function_to_apply": "softmax"}}, "softmax"),
    ],
)
def test_predict_reads_what_makes_scores_of_logits(
    body: dict[str, Any], activation: str, model: Verified, server: Served
) -> None:
    texts = ["Search needs small models.", "a"]
    (reference,) = model.references.registered
    loaded = model.references._load(reference)
    expected = loaded.answer([Item(text=text) for text in texts], Task("extract", options={"activation": activation}))
    assert_equal(predict(server, model.report.model, texts, **body), list(expected))


def test_the_classes_of_a_model_are_told(model: Verified, server: Served) -> None:
    info = httpx.get(f"{server.url}/tei/{model.report.model}/info", timeout=60).raise_for_status().json()
    names = {str(number): name for number, name in CLASSES.items()}
    assert info["model_type"] == {"classifier": {"id2label": names, "label2id": NUMBERS}}
    listed = httpx.get(f"{server.url}/v1/models/{model.report.model}", timeout=60).raise_for_status().json()
    assert listed["classes"] == list(CLASSES.values())
