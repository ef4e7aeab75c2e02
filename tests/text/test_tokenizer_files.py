"""A tokenizer read without transformers is the one transformers builds, whatever small files beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sie_text.recipe import TransformerSettings
from sie_text.tokenizer.files import read_files
from sie_text.tokenizer.loading import text_tokenizer, transformers_tokenizer
from sie_text.tokenizer.precedence import follow_file
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer

from sie_core.catalog import read_card
from tests.pytorch.tokenizers import write_tokenizer

TEXTS = ("the Quick fox [SEP] and [MASK]", "an <extra> token, [unused] or not", "x")

SAID: tuple[dict[str, Any], ...] = (
    {"split_special_tokens": True},
    {"additional_special_tokens": ["<extra>", "[unused]"]},
    {"extra_special_tokens": ["<extra>"]},
    {"extra_special_tokens": {"x": "<extra>"}},
    {"sep_token": "<extra>"},
    {"do_lower_case": True},
    {"padding_side": "left"},
    {"truncation_side": "right"},
    {},
)


@pytest.mark.parametrize("said", SAID, ids=str)
def test_it_has_the_same_ids_special_tokens_and_sides(said: dict[str, Any], tmp_path: Path) -> None:
    write_tokenizer("bert", tmp_path)
    core = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    core.normalizer = BertNormalizer(lowercase=False)
    core.enable_truncation(9, direction="left")
    core.save(str(tmp_path / "tokenizer.json"))
    config = tmp_path / "tokenizer_config.json"
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "tokenizer_class": "PreTrainedTokenizerFast", **said})
    )
    card, settings = read_card(tmp_path), TransformerSettings()
    expected = text_tokenizer(transformers_tokenizer(card, settings), card, settings)
    core, facts = read_files(card, settings)
    core.no_truncation()
    for text, ids in zip(TEXTS, expected.content(TEXTS), strict=True):
        assert core.encode(text, add_special_tokens=False).ids == ids.tolist()
        assert expected.content([text])[0].tolist() == ids.tolist()
    assert facts.special_ids == expected.special_ids
    assert (facts.cuts_start, facts.pads_start) == (expected.cuts_start, expected.pads_start)


def test_probe_texts_beyond_the_models_length_are_no_warning(tmp_path: Path) -> None:
    write_tokenizer("bert", tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_max_length": 4}))
    card, settings = read_card(tmp_path), TransformerSettings()
    origin = transformers_tokenizer(card, settings)
    follow_file(card, settings, origin)
    assert origin.deprecation_warnings == {}, "transformers notes there what it has warned of"
    origin("a text of more than four tokens")
    assert origin.deprecation_warnings
