"""Words to token ids, as the tokenizer that gliner reads gives them."""

from pathlib import Path

from sie_gliner.text.tokens import Tokens
from sie_text.tokenizer import load_tokenizer

from sie_core.catalog import read_card
from tests.pytorch.tokenizers import LETTERS, unigram


def test_pieces_with_equal_scores_are_cut_as_the_tokenizer_itself_cuts_them(tmp_path: Path) -> None:
    """The library that reads `tokenizer.json` rounds the scores of a Unigram vocabulary, by a bit."""
    theirs = unigram()
    theirs.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    tokens = Tokens.of(load_tokenizer(read_card(tmp_path)))
    words = [letter * length for letter in LETTERS for length in (2, 3, 5, 8)]
    expected = [theirs([word], is_split_into_words=True, add_special_tokens=False).input_ids for word in words]
    assert [tokens.ids([word]).tolist() for word in words] == expected
