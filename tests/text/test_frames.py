"""Pairs are framed, typed and cut exactly as the tokenizers library does."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import transformers as tf
from sie_text.pairs import PairFrame
from sie_text.pairs.frames import share
from sie_text.recipe import NotUnderstoodError
from sie_text.truncation import cut
from tokenizers import Tokenizer, models, processors

from tests.pytorch.tokenizers import TEMPLATES, write_tokenizer

TRUNCATIONS = ("longest_first", "only_first", "only_second")


def tokenizer(style: str, folder: Path) -> tf.PreTrainedTokenizerFast:
    write_tokenizer(style, folder)
    return tf.AutoTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.mark.parametrize("style", TEMPLATES)
def test_a_pair_has_the_tokenizer_s_special_tokens_and_types(style: str, tmp_path: Path) -> None:
    theirs = tokenizer(style, tmp_path)
    core = theirs.backend_tokenizer
    frame = PairFrame.of(core)
    first, second = "the quick brown fox", "der Hund \N{DOG FACE}"
    parts = [np.array(theirs(text, add_special_tokens=False)["input_ids"]) for text in (first, second)]
    ids, types = frame.join(*parts)
    expected = theirs(first, second, return_token_type_ids=True)
    assert ids.tolist() == expected["input_ids"]
    assert types.tolist() == expected["token_type_ids"]
    assert (ids.dtype, types.dtype) == (np.int64, np.int64)
    assert frame.framing == len(ids) - len(parts[0]) - len(parts[1])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_a_long_pair_is_cut_as_the_tokenizer_cuts_it(truncation: str, side: str, tmp_path: Path) -> None:
    theirs = tokenizer("bert", tmp_path)
    theirs.truncation_side = side
    core = theirs.backend_tokenizer
    frame = PairFrame.of(core)
    words = core.encode("ABCDEFGH", add_special_tokens=False).ids
    assert len(words) == 8
    text = {count: theirs.decode(words[:count]) for count in range(9)}
    for count, other, room in product(range(9), range(9), range(2, 12)):
        kept = share(count, other, room, truncation)
        if kept is None:
            continue
        ours, _ = frame.join(
            *(
                cut(np.array(words[:size], dtype=np.int64), keeps, start=side == "left")
                for size, keeps in zip((count, other), kept, strict=True)
            )
        )
        pair = [(text[count], text[other])]
        expected = theirs(pair, truncation=truncation, max_length=room + frame.framing)
        assert ours.tolist() == expected["input_ids"][0], (count, other, room)


def test_a_text_that_cannot_give_enough_is_not_cut() -> None:
    assert share(9, 5, 5, "only_first") is None
    assert share(5, 9, 5, "only_second") is None
    assert share(9, 5, 6, "only_first") == (1, 5)


def test_a_tokenizer_that_pairs_in_another_way_is_refused() -> None:
    core = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[X]": 2}, unk_token="a"))
    core.post_processor = processors.TemplateProcessing(single="$A", pair="$B [X] $A", special_tokens=[("[X]", 2)])
    with pytest.raises(NotUnderstoodError):
        PairFrame.of(core)
