"""A fault seeded into each part of the way from two texts to a score is seen by the comparison with the reference."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import modules as cross

from tests.pytorch.pairs.support import (
    DOCUMENTS,
    NLI,
    deviation,
    extract,
    pairs,
    reference,
    score,
    serve,
    write_classifier,
    write_language_model,
)
from tests.pytorch.pairs.test_zero_shot import expected, pipeline

SEEN = 1e-3
"""A hundred times what the comparisons allow."""
LONG = "the model reads both and the index keeps what it has read " * 12


def _last_token(model: Any) -> None:
    model._head._classifier.gathering = "lasttoken"


def _mean(model: Any) -> None:
    model._head._classifier.gathering = "mean"


def _no_types(model: Any) -> None:
    model._gives_types = False


def _no_pooler(model: Any) -> None:
    model._head._classifier._given.pooler = torch.nn.Flatten()


def _no_activation(model: Any) -> None:
    model._head.labels = replace(model._head.labels, activation="Identity")


def _swapped(model: Any) -> None:
    frame = model._preparation._frame
    model._preparation._frame = replace(frame, text_types=frame.text_types[::-1])


def _no_separator(model: Any) -> None:
    frame = model._preparation._frame
    before, _, after = frame.types
    model._preparation._frame = replace(frame, middle=frame.middle[:0], types=(before, frame.middle[:0], after))


def _cuts_the_document(model: Any) -> None:
    model._preparation._truncation = "only_first"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("bert", _last_token),
        ("bert", _no_types),
        ("bert", _no_pooler),
        ("bert", _no_activation),
        ("bert", _swapped),
        ("bert", _no_separator),
        ("bert", _cuts_the_document),
        ("roberta", _last_token),
        ("modernbert", _mean),
        ("deberta-v2", _last_token),
        ("albert", _no_types),
        ("eurobert", _mean),
        ("qwen3", _mean),
    ],
)
def test_a_faulty_classifier_is_seen(name: str, fault: Callable[[Any], None], tmp_path: Path) -> None:
    folder = write_classifier(name, tmp_path)
    query, documents = LONG[:150], [*DOCUMENTS, LONG[:300]]
    adapter = serve(folder, max_sequence_length=90)
    answers = reference(folder, max_length=90).predict(pairs(documents, query), batch_size=1)
    assert deviation(score(adapter, documents, query), answers) < SEEN / 10
    fault(adapter)
    assert deviation(score(adapter, documents, query), answers) > SEEN


def _swapped_tokens(model: Any) -> None:
    head = model._head._classifier._rows._model.lm_head
    head.weight.data = head.weight.data.flip(0)


def _first_token(model: Any) -> None:
    model._head._classifier._rows.gathering = "cls"


def _other_template(model: Any) -> None:
    given = model._preparation._template
    model._preparation._template = lambda query, instruction: replace(given(query, instruction), suffix=" answer:")


@pytest.mark.parametrize("fault", [_swapped_tokens, _first_token, _other_template])
def test_a_faulty_language_model_is_seen(fault: Callable[[Any], None], tmp_path: Path) -> None:
    write_language_model("qwen3", tmp_path / "plain")
    chat = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}answer: "
    transformer = cross.Transformer(
        str(tmp_path / "plain"), transformer_task="text-generation", processor_kwargs={"chat_template": chat}
    )
    CrossEncoder(modules=[transformer, cross.LogitScore(7, 9)], device="cpu").save_pretrained(
        str(tmp_path / "saved"), create_model_card=False
    )
    adapter, answers = serve(tmp_path / "saved"), reference(tmp_path / "saved").predict(pairs(), batch_size=1)
    assert deviation(score(adapter), answers) < SEEN / 10
    fault(adapter)
    assert deviation(score(adapter), answers) > SEEN


def _other_entailment(model: Any) -> None:
    model._head.labels = replace(model._head.labels, entailment=1)


@pytest.mark.parametrize("fault", [_other_entailment, _last_token, _no_types])
def test_a_faulty_entailment_is_seen(fault: Callable[[Any], None], tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path, labels=NLI)
    adapter, labels = serve(folder), ("one", "two", "three")
    (answer,) = expected(pipeline(folder), DOCUMENTS[:1], *labels)

    def far() -> float:
        (ours,) = extract(adapter, DOCUMENTS[:1], *labels)
        return max(abs(ours[label] - answer[label]) for label in labels)

    assert far() < SEEN / 10
    fault(adapter)
    assert far() > SEEN
