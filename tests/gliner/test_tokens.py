"""Words to token ids, as the tokenizer that gliner reads gives them."""

from sie_gliner.text.tokens import Tokens

from tests.pytorch.tokenizers import LETTERS, unigram


def test_pieces_with_equal_scores_are_cut_as_the_tokenizer_itself_cuts_them() -> None:
    """A Unigram vocabulary that is written to JSON and read again has other scores, by a bit."""
    theirs, tokens = unigram(), Tokens.of(unigram())
    words = [letter * length for letter in LETTERS for length in (2, 3, 5, 8)]
    expected = [theirs([word], is_split_into_words=True, add_special_tokens=False).input_ids for word in words]
    assert [tokens.ids([word]).tolist() for word in words] == expected
