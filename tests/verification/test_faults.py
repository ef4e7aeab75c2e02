"""A fault seeded into each head, and into what stands around it, makes a verified model differ."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sie_gliner import adapter as gliner
from sie_gliner.answers import reading
from sie_pytorch.families.vision import images
from sie_pytorch.families.vision.adapter import VisionEncoder
from sie_pytorch.families.vision.images import Decoder
from sie_pytorch.heads.composed.encoder import TextEncoder
from sie_pytorch.heads.sparse.splade import SpladeHead
from sie_pytorch.heads.sparse.token_weights import TokenWeightHead
from sie_pytorch.heads.vectors.dense import DenseHead
from sie_pytorch.heads.vectors.multivector import MultivectorHead
from sie_pytorch.heads.vectors.steps import UnitLengthStep
from sie_text import prompts
from sie_text.heads import ClassificationHead, EntityHead, Odds
from sie_text.heads.logits import pairs
from sie_text.labels import Labels
from sie_text.pairs import PairPreparation
from sie_text.static.encoder import StaticEncoder

from sie_core.contracts import ItemOutput
from tests.verification.conftest import Reverify, Verify

# The package has a function of the same name.
similarities = import_module("sie_core.postprocess.similarity")

right: dict[str, Callable[..., Any]] = {
    "dense": DenseHead.compute,
    "kept": MultivectorHead._kept,
    "weigh": TokenWeightHead.finish,
    "finish": TextEncoder.finish,
    "classify": pairs.classify,
    "name": ClassificationHead._classes,
    "odds": Odds.__call__,
    "decode": Decoder.decode,
    "look": StaticEncoder._output,
    "see": VisionEncoder.finish,
    "place": EntityHead.lay_out,
    "join": EntityHead.join,
    "read": reading.read,
    "merge": gliner.merge,
    "relate": reading.relation,
    "choose": prompts.Prompts.choose,
    "similarity": similarities.similarity,
    "pair": PairPreparation._pair,
}


def slightly_off(head: Any, *arguments: Any) -> Any:
    return (right["dense"](head, *arguments)[0] * 1.001,)


def neighbours_mixed(encoder: Any, units: Any, raw: Any) -> Any:
    return right["finish"](encoder, units, raw)[::-1]


def no_document_prompt(self: Any, task: Any, texts: int = 1) -> Any:
    return right["choose"](self, replace(task, input_type=None) if task.input_type == "document" else task, texts)


def special_tokens_weighed(head: Any, *arguments: Any) -> Any:
    head._weightless = head._weightless[:0]
    return right["weigh"](head, *arguments)


def all_kept(head: Any, batch: Any) -> Any:
    return np.ones_like(right["kept"](head, batch))


def entity_shifted(*arguments: Any) -> ItemOutput:
    output = right["read"](*arguments)
    moved = [replace(each, start=max(0, (each.start or 0) - 1)) for each in output.entities or ()]
    return replace(output, entities=tuple(moved))


def windows_joined(windows: Any, *, flat: bool) -> Any:
    return right["merge"](windows[:1], flat=flat)


def turned_round(head: Any, tail: Any, *others: Any) -> Any:
    return right["relate"](tail, head, *others)


def unknown_words_counted(encoder: StaticEncoder, sequence: Any) -> ItemOutput:
    encoder._dropped = None
    return right["look"](encoder, sequence)


FAULTS: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "dense vectors are a thousandth too long": ("dense-bert", DenseHead, "compute", slightly_off),
    "vectors are not scaled": ("dense-roberta", UnitLengthStep, "forward", lambda step, vectors: vectors),
    "texts of a batch are mixed up": ("dense-bert", TextEncoder, "finish", neighbours_mixed),
    "documents get no prompt": ("dense-bert", prompts.Prompts, "choose", no_document_prompt),
    "scores are halved": (
        "dense-bert", similarities, "similarity", lambda *asked: right["similarity"](*asked) / 2,
    ),
    "the logarithm is left out": ("sparse-bert", SpladeHead, "_weigh", lambda head, logits: logits),
    "the skip list is forgotten": ("multivector-bert", MultivectorHead, "_kept", all_kept),
    "the first token is kept": ("bge-m3-bert", MultivectorHead, "_kept", all_kept),
    "special tokens are weighed": ("bge-m3-xlm-roberta", TokenWeightHead, "finish", special_tokens_weighed),
    "the activation is left out": (
        "pairs-bert", pairs, "score", lambda logits, choice: float(logits[choice.label]),
    ),
    "pairs are turned round": (
        "pairs-xlm-roberta", PairPreparation, "_pair",
        lambda self, first, second, *others: right["pair"](self, second, first, *others),
    ),
    "answers change places": (
        "answers-qwen3",
        Odds,
        "__call__",
        lambda head, *states: -right["odds"](head, *states),
    ),
    "the chat template is not asked": ("chat-qwen3", PairPreparation, "_chosen_template", lambda self, task: None),
    "another label entails": (
        "labels-bert", pairs, "classify",
        lambda logits, labels, entailment, **how: right["classify"](logits, labels, 1, **how),
    ),
    "another label is the score": (
        "labels-roberta", Labels, "choose", lambda self, task, model: pairs.ScoreChoice(0, self.activation),
    ),
    "classes change names": (
        "classes-bert", ClassificationHead, "_classes",
        lambda head, logits, activation: right["name"](head, logits[::-1], activation),
    ),
    "classes are judged each by itself": (
        "classes-bert", ClassificationHead, "_classes",
        lambda head, logits, activation: right["name"](head, logits, "sigmoid"),
    ),
    "unknown words count": ("model2vec-plain", StaticEncoder, "_output", unknown_words_counted),
    "pictures are turned": (
        "pictures-clip",
        Decoder,
        "decode",
        lambda decoder, *image: right["decode"](decoder, *image).transpose(Image.Transpose.ROTATE_90),
    ),
    "transparency is dropped": ("pictures-siglip", images, "to_rgb", lambda image: image.convert("RGB")),
    "pictures and texts are shortened": (
        "pictures-siglip", VisionEncoder, "finish",
        lambda model, *rows: [replace(each, dense=each.dense * 0.99) for each in right["see"](model, *rows)],
    ),
    "the token before is labelled": (
        "entities-bert", EntityHead, "lay_out", lambda head, *given: right["place"](head, *given) - 1,
    ),
    "the end of a long text is lost": (
        "entities-modernbert", EntityHead, "join",
        lambda head, *given: replace(found := right["join"](head, *given), entities=(found.entities or ())[:-1]),
    ),
    "entities begin a character early": ("gliner-relex-pairs", gliner, "read", entity_shifted),
    "later windows are lost": ("gliner-relex-pairs", gliner, "merge", windows_joined),
    "heads and tails change places": ("gliner-relex-pairs", reading, "relation", turned_round),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, verified: Verify, verify: Reverify, monkeypatch: pytest.MonkeyPatch) -> None:
    model, place, name, wrong = FAULTS[fault]
    assert verified(f"tiny/{model}").report.verdict == "verified"
    monkeypatch.setattr(place, name, wrong)
    report = verify(f"tiny/{model}")
    assert report.verdict == "differs", "\n".join(report.lines())
    assert any(row.deviation > 3 * row.tolerance for row in report.rows)


def test_a_fault_of_batches_alone_is_seen(verified: Verify, verify: Reverify, monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking(head: Any, states: torch.Tensor, *others: Any) -> Any:
        (vectors,) = right["dense"](head, states, *others)
        return (vectors + 1e-2 * (len(vectors) > 1),)

    assert verified("tiny/dense-modernbert").report.verdict == "verified"
    monkeypatch.setattr(DenseHead, "compute", leaking)
    assert verify("tiny/dense-modernbert").verdict == "differs"


def test_numbers_that_are_none_are_told(verify: Reverify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DenseHead, "compute", lambda head, *rest: (right["dense"](head, *rest)[0] * float("nan"),))
    report = verify("tiny/dense-bert")
    assert report.verdict == "differs"
    assert "NON_FINITE_OUTPUT" in report.rows[0].note
    assert report.as_dict()["rows"][0]["deviation"] is None
