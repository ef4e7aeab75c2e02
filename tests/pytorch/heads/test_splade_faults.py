"""Seeded faults of the SPLADE head: each must put the weights beyond the bound its tests hold without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sie_pytorch.heads.own_class.masked_language import MaskedLanguageHead
from sie_pytorch.heads.sparse.splade import SpladeHead

from tests.pytorch.encoders import ask, deviation, serve
from tests.pytorch.heads.splade import save_splade, spelled_out
from tests.pytorch.heads.test_splade import BOUND, SPARSE, TEXTS

right_take, right_call = SpladeHead._take, MaskedLanguageHead.__call__


def without_logarithm(head: Any, logits: torch.Tensor) -> torch.Tensor:
    return logits


def without_last_token(head: Any, pooled: torch.Tensor, logits: torch.Tensor) -> None:
    if len(logits) > 1:
        right_take(head, pooled, logits[:-1])


def mean_in_place_of_largest(head: Any, pooled: torch.Tensor, logits: torch.Tensor) -> None:
    pooled += logits.float().mean(0).relu()


def bias_left_out(head: Any, states: torch.Tensor) -> torch.Tensor:
    bias = head._model.cls.predictions.decoder.bias
    return right_call(head, states) - bias


FAULTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "the logarithm is left out": (SpladeHead, "_weigh", without_logarithm),
    "the last token is left out": (SpladeHead, "_take", without_last_token),
    "the mean is taken": (SpladeHead, "_take", mean_in_place_of_largest),
    "the decoder's bias is left out": (MaskedLanguageHead, "__call__", bias_left_out),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(
    fault: str, masked_language: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_splade(masked_language("bert"), tmp_path)
    monkeypatch.setattr(*FAULTS[fault])
    assert deviation(ask(serve(tmp_path), TEXTS, **SPARSE).weights, spelled_out(model, TEXTS)) > 100 * BOUND
