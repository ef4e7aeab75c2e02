"""What a model is asked holds what faults hide in."""

from sie_core.contracts import ModelInfo
from sie_core.verification.questions import SPELLED, questions

TOKENS = ("[MASK]", "<mask>", "[PAD]", "<pad>", "[UNK]", "<unk>", "[SEP]", "</s>", "<|endoftext|>")


def test_special_tokens_are_spelled_at_the_start_inside_and_at_the_end_of_texts() -> None:
    assert all(any(token in text for text in SPELLED) for token in TOKENS)
    assert any(text.startswith(TOKENS) for text in SPELLED)
    assert {token for token in TOKENS for text in SPELLED if text.endswith(token)} >= {"<pad>", "<|endoftext|>"}
    assert any(token in text[12:-16] for token in TOKENS for text in SPELLED)


def test_who_encodes_or_scores_is_asked_with_them_and_who_extracts_is_not() -> None:
    outputs, operations = ("dense", "score", "json"), ("encode", "score", "extract")
    info = ModelInfo("org/model", ("text",), outputs, dims={}, state="loaded", operations=operations)
    asked = {each.operation: [item.text for item in each.items] for each in questions(info, (), None)}
    assert asked.keys() == {"encode", "score", "extract"}
    assert set(SPELLED) <= set(asked["encode"])
    assert set(SPELLED) <= set(asked["score"])
    assert not set(SPELLED) & set(asked["extract"])
