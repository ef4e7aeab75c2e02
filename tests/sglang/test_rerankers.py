"""Rerankers made of language models: scores and tokens are those of sie-pytorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sie_pytorch.families.pairs.loading import load as load_theirs
from sie_sglang.claims import claim_reranker
from sie_sglang.loading import load_pairs

from sie_core.catalog import read_card
from sie_core.contracts import Claim, FamilyUnfitError
from tests.pytorch.pairs import support as pairs
from tests.pytorch.pairs.test_language_models import ANSWERS, MATCH, NO_MATCH


@pytest.mark.usefixtures("engine_python")
def test_scores_are_those_of_the_other_family_and_swapped_answers_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pairs.write_language_model("qwen3", tmp_path / "reranker")
    context = pairs.context(folder, loadtime=ANSWERS)
    theirs, ours = load_theirs(context), load_pairs(context)
    try:
        for asked in ({}, {"instruction": "judge"}, {"options": {"activation": "identity"}}):
            found, expected = pairs.score(ours, **asked), pairs.score(theirs, **asked)
            assert pairs.deviation(found, expected) <= 1e-5
        assert np.std(expected) > 0.01
        assert (ours.facts.operations, theirs.facts.operations) == (("score",), ("score",))
        assert ours.facts.notes["template"] == theirs.facts.notes["template"]
        monkeypatch.setattr(ours, "_tokens", ours._tokens[::-1])
        assert pairs.deviation(pairs.score(ours, **asked), expected) > 1e-2
        assert not ours.facts.takes_lora
    finally:
        ours.unload()


@pytest.mark.usefixtures("engine_python")
def test_one_answer_alone_and_a_classifier_are_refused(tmp_path: Path) -> None:
    folder = pairs.write_language_model("qwen3", tmp_path / "reranker")
    with pytest.raises(FamilyUnfitError, match="needs two tokens"):
        load_pairs(pairs.context(folder, loadtime={"true_token": MATCH}))
    with pytest.raises(FamilyUnfitError, match="tokens alone"):
        load_pairs(pairs.context(pairs.write_classifier("bert", tmp_path / "bert")))


def test_a_language_model_is_claimed_if_its_files_name_two_answers(tmp_path: Path) -> None:
    folder = pairs.write_language_model("qwen3", tmp_path)
    assert claim_reranker(read_card(folder)) is None
    pairs.change_json(folder / "config.json", classifier_from_token=[NO_MATCH, MATCH])
    claim = claim_reranker(read_card(folder))
    assert isinstance(claim, Claim)
    assert claim.priority < 0, "smaller ones go to the families of this process"
