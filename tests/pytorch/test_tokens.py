"""Tokenisation and truncation, against sentence-transformers' own tokenizer on the same folder."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertTokenizer, PreTrainedTokenizerFast

from sie_core.contracts import Adapter, InvalidInput, Item, ModelLoadError, Truncation, Unit
from tests.pytorch.corpus import make_texts
from tests.pytorch.encoders import ask, deviation, save_encoder, serve, task
from tests.pytorch.models import HIDDEN, POSITIONS, VOCABULARY
from tests.pytorch.tokenizers import LETTERS, write_unigram

TEXTS = ["", " ", "a", "A QUERY IS SHORT", "a [SEP] b [CLS] </s> <eos> c", *make_texts(25, 30, seed=5)]
LONG = "the quick brown fox jumps over the lazy dog and the search engine ranks every document by its embedding " * 5

Checkpoint = Callable[[str], Path]


def save(base: Path, folder: Path, **arguments: Any) -> SentenceTransformer:
    return save_encoder(base, folder, st.Pooling(HIDDEN, "mean"), **arguments)


def ids_of(units: Sequence[Unit]) -> list[list[int]]:
    return [unit.payload.ids.tolist() for unit in units]


def expected_ids(model: SentenceTransformer, texts: Sequence[str], **arguments: Any) -> list[list[int]]:
    return [model.preprocess([text], **arguments)["input_ids"][0].tolist() for text in texts]


def edit(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize("style", ["bert", "roberta", "t5", "qwen3"])
@pytest.mark.parametrize("lower", [False, True])
def test_ids_equal_the_reference_s(style: str, lower: bool, checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint(style), tmp_path, length=40, prompts={"query": "Query: "})
    edit(tmp_path / "sentence_bert_config.json", do_lower_case=lower)
    model = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    encoder = serve(tmp_path)
    units = list(encoder.prepare([Item(text=text) for text in TEXTS], task()))
    assert ids_of(units) == expected_ids(model, TEXTS)
    units = list(encoder.prepare([Item(text=text) for text in TEXTS], task(input_type="query")))
    assert ids_of(units) == expected_ids(model, TEXTS, prompt="Query: ", task="query")
    assert [unit.cost for unit in units] == [unit.tokens for unit in units] == [len(ids) for ids in ids_of(units)]
    assert [unit.item for unit in units] == list(range(len(TEXTS)))


@pytest.mark.parametrize("style", ["bert", "roberta", "t5", "qwen3"])
def test_texts_of_tokens_are_the_reference_s(style: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save(checkpoint(style), tmp_path)
    ids = expected_ids(model, TEXTS)
    encoder = serve(tmp_path)
    for special in (False, True):
        options = {"skip_special_tokens": not special, "clean_up_tokenization_spaces": False}
        assert encoder.decode(ids, special=special) == [model.tokenizer.decode(each, **options) for each in ids]
    for unknown in (10**6, 2**40):
        with pytest.raises(InvalidInput, match=str(unknown)) as refused:
            encoder.decode([[5], [5, unknown]], special=False)
        assert refused.value.param == "ids[1]"


def test_pieces_with_equal_scores_are_cut_as_the_reference_cuts_them(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A Unigram vocabulary that is written to JSON and read again has other scores, by a bit."""
    write_unigram(checkpoint("bert"), tmp_path)
    model = save(tmp_path, tmp_path / "saved")
    texts = [letter * length for letter in LETTERS for length in (2, 3, 5, 8)]
    units = list(serve(tmp_path / "saved").prepare([Item(text=text) for text in texts], task()))
    assert ids_of(units) == expected_ids(model, texts)


def test_a_cut_and_padding_that_a_unigram_file_stores_change_no_ids(checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_unigram(checkpoint("bert"), tmp_path)
    save(tmp_path, tmp_path / "saved")
    file = tmp_path / "saved/tokenizer.json"
    core = Tokenizer.from_file(str(file))
    expected = core.encode(LETTERS[0] * 30).ids
    core.enable_truncation(4)
    core.enable_padding(length=64)
    core.save(str(file))
    (unit,) = serve(tmp_path / "saved").prepare([Item(text=LETTERS[0] * 30)], task())
    assert len(expected) > 4
    assert ids_of([unit]) == [expected]


def test_a_tokenizer_without_a_tokenizer_json_is_converted(checkpoint: Checkpoint, tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "doc", "##ument", "short", "a", ",", "é"]
    model = save(checkpoint("bert"), tmp_path)
    BertTokenizer(vocab={word: index for index, word in enumerate(words)}).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    model = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    texts = ["A query, short", "document é", "nothing known"]
    assert ids_of(list(serve(tmp_path).prepare([Item(text=text) for text in texts], task()))) == expected_ids(
        model, texts
    )


def test_a_flag_counts_more_than_the_class_that_ignores_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("llama"), tmp_path)
    edit(tmp_path / "tokenizer_config.json", tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=True)
    core = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    expected = [core.token_to_id("<bos>"), *core.encode("a query").ids]
    assert expected[-1] == core.token_to_id("<eos>")
    assert ids_of(list(serve(tmp_path).prepare([Item(text="a query")], task()))) == [expected]


def test_the_length_is_the_one_the_files_declare(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for name, length, limit in (("given", 33, 33), ("positions", None, POSITIONS)):
        model = save(checkpoint("bert"), tmp_path / name, length=length)
        encoder = serve(tmp_path / name)
        assert encoder.facts.max_sequence_length == limit == model.max_seq_length
        (unit,) = encoder.prepare([Item(text=LONG)], task())
        assert ids_of([unit]) == expected_ids(model, [LONG])
        assert unit.tokens == limit
    edit(tmp_path / "given/sentence_bert_config.json", max_seq_length=None)
    edit(tmp_path / "given/tokenizer_config.json", model_max_length=21)
    assert serve(tmp_path / "given").facts.max_sequence_length == 21


def test_a_length_beyond_the_positions_is_cut_to_them_and_said(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("roberta"), tmp_path)
    edit(tmp_path / "sentence_bert_config.json", max_seq_length=4000)
    facts = serve(tmp_path).facts
    assert facts.max_sequence_length == POSITIONS
    assert "4000" in facts.notes["max_sequence_length"]


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
def test_a_length_that_nobody_states_is_assumed_and_said(family: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("t5"), tmp_path)
    edit(tmp_path / "tokenizer_config.json", model_max_length=10**30)

    def tokens(length: int | None = None) -> tuple[int | None, int | None, str]:
        encoder = serve(tmp_path, family, **({} if length is None else {"max_sequence_length": length}))
        (unit,) = encoder.prepare([Item(text=LONG * 20)], task())
        with pytest.raises(InvalidInput, match="max_seq_length"):
            ask(encoder, ["a"], options={"max_seq_length": 5000})
        return encoder.facts.max_sequence_length, unit.tokens, encoder.facts.notes.get("max_sequence_length", "")

    limit, kept, note = tokens()
    assert limit == kept == 512
    assert "assumed" in note
    assert tokens(700) == (700, 700, "")
    edit(tmp_path / "config.json", n_positions=100)
    limit, kept, note = tokens()
    assert limit == kept == 100
    assert "n_positions" in note


def test_the_config_and_the_request_may_choose_the_length(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("bert"), tmp_path, length=40)
    encoder = serve(tmp_path, max_sequence_length=50, runtime={"query_max_length": 12})
    assert encoder.facts.max_sequence_length == 50
    lengths = [
        ask(encoder, [LONG], **fields).units[0].tokens
        for fields in (
            {},
            {"options": {"max_seq_length": 10}},
            {"options": {"max_seq_length": 10, "query_max_length": 7}},
            {"options": {"max_seq_length": 10, "query_max_length": 7}, "input_type": "query"},
        )
    ]
    assert lengths == [50, 10, 10, 7]
    with pytest.raises(InvalidInput, match=f"3 to {POSITIONS}") as refused:
        ask(encoder, ["a"], options={"max_seq_length": POSITIONS + 1})
    assert refused.value.param == "options.max_seq_length"
    with pytest.raises(ModelLoadError, match="query_max_length is 2;") as failed:
        serve(tmp_path, runtime={"query_max_length": 2})
    assert failed.value.failure == "CONFIG"


def test_lengths_of_queries_and_documents_are_those_of_the_files(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("bert"), tmp_path, length=40)
    edit(tmp_path / "sentence_bert_config.json", query_length=9, document_length=30)
    model = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    encoder = serve(tmp_path)
    for input_type in (None, "query", "document"):
        units = list(encoder.prepare([Item(text=LONG)], task(input_type=input_type)))
        assert ids_of(units) == expected_ids(model, [LONG], task=input_type)


def test_either_end_can_be_cut(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save(checkpoint("bert"), tmp_path, length=20)
    encoder = serve(tmp_path)
    for side, truncate in (("right", "end"), ("left", "start")):
        model.tokenizer.truncation_side = side
        (unit,) = encoder.prepare([Item(text=LONG)], task(truncate=truncate))
        assert ids_of([unit]) == expected_ids(model, [LONG])
        assert unit.truncated is not None
        assert unit.truncated.kept == unit.tokens == 20
        assert unit.truncated.tokens == len(model.tokenizer(LONG)["input_ids"])
    (whole,) = encoder.prepare([Item(text="a")], task(truncate="start"))
    assert whole.truncated is None


@pytest.mark.parametrize("prompt", ["", "the query: "])
def test_a_very_long_text_is_cut_as_if_it_were_read_whole(prompt: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save(checkpoint("bert"), tmp_path, length=20)
    encoder = serve(tmp_path)
    text = " ".join([*["river old"] * 9_000, "the last words"])
    fields = {"options": {"query_template": f"{prompt}{{text}}"}, "input_type": "query"} if prompt else {}
    for side, truncate in (("right", "end"), ("left", "start")):
        model.tokenizer.truncation_side = side
        (unit,) = encoder.prepare([Item(text=text)], task(truncate=truncate, **fields))
        if not prompt:
            assert ids_of([unit]) == expected_ids(model, [text])
        assert unit.truncated is not None
        assert unit.truncated.at_least
        assert 20 < unit.truncated.tokens < len(model.tokenizer(text)["input_ids"])
    with pytest.raises(InvalidInput, match=r"has more than \d+ tokens") as refused:
        list(encoder.prepare([Item(text="a"), Item(text=text)], task(truncate="error", **fields)))
    assert refused.value.param == "items[1].text"


def test_the_weights_files_choose_the_end_where_a_request_says_nothing(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("bert"), tmp_path, length=20)
    edit(tmp_path / "tokenizer_config.json", truncation_side="left")
    model = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    encoder = serve(tmp_path)
    assert deviation(ask(encoder, [LONG]).vectors, model.encode([LONG])) <= 1e-5
    ends = [
        ids_of(list(encoder.prepare([Item(text=LONG)], task(truncate=truncate)))) for truncate in (None, "start", "end")
    ]
    assert ends[0] == ends[1] != ends[2]


def test_a_cut_at_the_start_spares_the_words_before_a_text(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Else an instruction is what is cut first, and as many tokens of the text are not pooled in its place."""
    pooling = st.Pooling(HIDDEN, "mean", include_prompt=False)
    save_encoder(checkpoint("bert"), tmp_path, pooling, length=20, prompts={"query": "the query:"})
    encoder = serve(tmp_path)
    words = next(encoder.prepare([Item(text="")], task(input_type="query"))).payload.ids[:-1].tolist()
    (bare,) = encoder.prepare([Item(text=LONG)], task(truncate="start"))
    for fields in ({}, {"options": {"query_template": "the query:{text}"}}):
        (unit,) = encoder.prepare([Item(text=LONG)], task(truncate="start", input_type="query", **fields))
        assert unit.tokens == 20
        assert unit.payload.excluded == len(words)
        assert unit.payload.ids.tolist() == words + bare.payload.ids[len(words) :].tolist()


def test_a_length_that_the_words_before_a_text_take_whole_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    pooling = st.Pooling(HIDDEN, "mean", include_prompt=False)
    save_encoder(checkpoint("bert"), tmp_path, pooling, length=40, prompts={"query": "the query is: "})
    encoder = serve(tmp_path)
    (row,) = (unit.payload for unit in encoder.prepare([Item(text="")], task(input_type="query")))
    for truncate in ("start", "end"):
        with pytest.raises(InvalidInput, match="leaves none for the text") as refused:
            ask(encoder, [LONG], input_type="query", truncate=truncate, options={"max_seq_length": row.excluded})
        assert refused.value.param == "options.max_seq_length"


def test_truncation_can_be_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("bert"), tmp_path, length=20)
    encoder = serve(tmp_path)
    assert len(ask(encoder, ["a"], truncate="error").units) == 1
    with pytest.raises(InvalidInput, match=r"tokens, and test/model takes 20: shorten") as refused:
        ask(encoder, ["a", LONG], truncate="error")
    assert (refused.value.code, refused.value.param) == ("INPUT_TOO_LONG", "items[1].text")


def test_ids_of_the_model_s_own_tokenizer_stand_for_a_text(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save(checkpoint("bert"), tmp_path, length=20, prompts={"query": "query: "})
    encoder = serve(tmp_path, accept_token_ids=True)
    bare = tuple(model.tokenizer("a query is short", add_special_tokens=False)["input_ids"])
    framed = tuple(model.tokenizer("a query is short")["input_ids"])
    items = [Item(token_ids=bare), Item(text="a query is short"), Item(token_ids=framed)]
    answer = ask(encoder, items)
    assert ids_of(answer.units)[0] == ids_of(answer.units)[1] == ids_of(answer.units)[2] == list(framed)
    (query,) = encoder.prepare([Item(token_ids=bare)], task(input_type="query"))
    assert model.tokenizer.decode(query.payload.ids[1:-1]) == "query: a query is short"
    (cut,) = encoder.prepare([Item(token_ids=bare * 9)], task())
    assert cut.truncated == Truncation(9 * len(bare) + 2, 20)


@pytest.mark.parametrize("ids", [(), (-1,), (400,), (2**70,)])
def test_ids_that_are_none_of_the_tokenizer_are_refused(ids: tuple[int, ...], checkpoint: Checkpoint) -> None:
    encoder = serve(checkpoint("bert"), accept_token_ids=True)
    with pytest.raises(InvalidInput, match="from 0 to") as refused:
        ask(encoder, ["a", Item(token_ids=ids)])
    assert refused.value.param == "items[1].token_ids"


def test_ids_are_refused_where_the_config_does_not_take_them(checkpoint: Checkpoint) -> None:
    with pytest.raises(InvalidInput, match="accept_token_ids") as refused:
        ask(serve(checkpoint("bert")), [Item(token_ids=(7,))])
    assert refused.value.param == "items[0].token_ids"


def test_an_item_without_a_text_and_one_that_is_no_unicode_are_refused(checkpoint: Checkpoint) -> None:
    encoder = serve(checkpoint("bert"))
    for item, problem in ((Item(), "missing"), (Item(text="a\ud800"), "surrogate")):
        with pytest.raises(InvalidInput, match=problem) as refused:
            ask(encoder, ["a", item])
        assert refused.value.param == "items[1].text"


def test_a_text_without_any_token_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save(checkpoint("llama"), tmp_path)
    bare = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=bare, pad_token="<unk>").save_pretrained(tmp_path)
    encoder = serve(tmp_path)
    assert ids_of(list(encoder.prepare([Item(text="a b")], task()))) == [[0, 1]]
    with pytest.raises(InvalidInput, match="no token") as refused:
        ask(encoder, ["a", "  "])
    assert refused.value.param == "items[1].text"


def test_a_token_the_model_has_no_embedding_of_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = save(checkpoint("bert"), tmp_path)
    model.tokenizer.add_tokens([f"<extra{number}>" for number in range(VOCABULARY)])
    model.tokenizer.save_pretrained(tmp_path)
    encoder = serve(tmp_path)
    assert len(ask(encoder, ["a"]).units) == 1
    with pytest.raises(InvalidInput, match="no embedding") as refused:
        ask(encoder, ["a", f"a <extra{VOCABULARY - 1}> b"])
    assert refused.value.param == "items[1].text"


def test_threads_share_the_tokenizer(checkpoint: Checkpoint) -> None:
    encoder: Adapter = serve(checkpoint("bert"))
    expected = ids_of(list(encoder.prepare([Item(text=text) for text in TEXTS], task())))

    def prepare(round_: int) -> bool:
        limits = {"max_seq_length": 5 + round_ % 7}
        list(encoder.prepare([Item(text=LONG)], task(options=limits, truncate="start")))
        return ids_of(list(encoder.prepare([Item(text=text) for text in TEXTS], task()))) == expected

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(prepare, range(64)))
