"""The catalog's rerankers made of language models score as their cards compute, each card's code written out here.

Cards join token ids of parts, which are not those of the whole text: `?` and a line break are one token of Qwen's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sie_pytorch
import torch
import transformers as tf
import yaml
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import modules as cross
from sie_text.claims import LINES, claim_pairs
from sie_text.pairs import QWEN3_INSTRUCTION, QWEN3_RERANKER
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from sie_core.catalog import read_card, read_config
from sie_core.catalog.configs.reading import parse_config
from sie_core.contracts import Claim, InvalidInput, Item, ModelLoadError, NoClaim, Task
from tests.pytorch.models import DECODER, randomise
from tests.pytorch.pairs.support import DOCUMENTS, QUERY, change_json, deviation, reference, score, serve

BOUND = 1e-4
TEXTS = tuple(document.strip() for document in DOCUMENTS)
"""The white space around a text is kept here; zerank-1's own code takes it off."""
ROWS = Path(sie_pytorch.__file__).parent / "models"
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<pad>", "<eos>", "<bos>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
ANSWERS = ["yes", "no", "Yes", "No", "0", "1"]
DIALOGUE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MXBAI = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:"
)
MXBAI_ENDS = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
)
BGE = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)
Ids = list[int]


def write(kind: str, folder: Path, **fields: Any) -> Path:
    """Write a causal language model with a tokenizer that splits texts as Qwen's, and joins what stands together."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    corpus = [MXBAI, BGE, QWEN3_RERANKER, *DOCUMENTS, f"{QUERY}\n", *ANSWERS * 9]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(corpus, trainer)
    core.add_tokens([word for word in ANSWERS if core.token_to_id(word) is None])
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", chat_template=DIALOGUE
    )
    tokenizer.save_pretrained(folder)
    config = {**DECODER, "vocab_size": len(tokenizer), "max_position_embeddings": 2048, **fields}
    model = tf.AutoModelForCausalLM.from_config(tf.AutoConfig.for_model(kind, **config))
    randomise(model, 7)
    model.save_pretrained(folder)
    return folder


class Card:
    """A model as its card loads it."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = tf.AutoTokenizer.from_pretrained(folder)
        self.model = tf.AutoModelForCausalLM.from_pretrained(folder).eval()

    def ids(self, text: str) -> Ids:
        found: Ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    @torch.inference_mode()
    def logits(self, ids: Ids, *words: str) -> torch.Tensor:
        last = self.model(torch.tensor([ids])).logits[0, -1]
        return last[[self.ids(word)[0] for word in words]].double()


def qwen3(card: Card, query: str, document: str) -> float:
    head, tail = QWEN3_RERANKER.split("<Instruct>")[0], QWEN3_RERANKER.split("{document}")[1]
    body = f"<Instruct>: {QWEN3_INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
    logits = card.logits([*card.ids(head), *card.ids(body), *card.ids(tail)], "no", "yes")
    return float(logits.log_softmax(0)[1].exp())


def mxbai(card: Card, query: str, document: str) -> float:
    start, end = MXBAI_ENDS
    parts = [start, f"query: {query}", "\n", f"document: {document}", "\n", MXBAI, end]
    one, zero = card.logits([number for part in parts for number in card.ids(part)], "1", "0")
    return float((one - zero).sigmoid())


def bge_gemma(card: Card, query: str, document: str) -> float:
    parts = [f"A: {query}", "\n", f"B: {document}", "\n", BGE]
    ids = [card.tokenizer.bos_token_id, *(number for part in parts for number in card.ids(part))]
    return float(card.logits(ids, "Yes")[0])


def zerank(card: Card, query: str, document: str) -> float:
    messages = [{"role": "system", "content": query.strip()}, {"role": "user", "content": document.strip()}]
    text = card.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return float((card.logits(card.ids(text), "Yes")[0] / 5.0).sigmoid())


GEMMA = {"hidden_activation": "gelu_pytorch_tanh"}
PUBLISHED: dict[str, tuple[str, dict[str, Any], Callable[[Card, str, str], float]]] = {
    "qwen3-reranker-0.6b": ("qwen3", {"tie_word_embeddings": True}, qwen3),
    "qwen3-reranker-4b": ("qwen3", {"tie_word_embeddings": True}, qwen3),
    "qwen3-reranker-8b": ("qwen3", {"tie_word_embeddings": False}, qwen3),
    "mxbai-rerank-base-v2": ("qwen2", {"tie_word_embeddings": True}, mxbai),
    "mxbai-rerank-large-v2": ("qwen2", {"tie_word_embeddings": True}, mxbai),
    "bge-reranker-v2-gemma": ("gemma", GEMMA, bge_gemma),
    "zerank-1": ("qwen3", {"tie_word_embeddings": True}, zerank),
    "zerank-1-small": ("qwen3", {"tie_word_embeddings": True}, zerank),
}


def served(name: str, folder: Path, **config: Any) -> Any:
    profile = read_config(ROWS / f"{name}.yaml").profiles["default"]
    assert profile.adapter_path in {"pytorch-pairs", None}
    return serve(folder, loadtime=dict(profile.loadtime), runtime=dict(profile.runtime), **config)


def asked(name: str, adapter: Any, documents: Sequence[str], query: str = QUERY) -> Any:
    """Score with the options of the row, as the engine resolves them."""
    runtime = dict(read_config(ROWS / f"{name}.yaml").profiles["default"].runtime)
    return score(adapter, documents, query, options=runtime)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_row_of_the_catalog_scores_as_its_card_computes(name: str, tmp_path: Path) -> None:
    kind, fields, compute = PUBLISHED[name]
    card = Card(write(kind, tmp_path, **fields))
    adapter = served(name, tmp_path)
    for query in (QUERY, "ends in a full stop."):
        expected = [compute(card, query, document) for document in TEXTS]
        assert np.std(expected) > 0.01
        assert deviation(asked(name, adapter, TEXTS, query), expected) <= BOUND


def test_parts_that_are_tokenised_alone_differ_from_the_whole_text(tmp_path: Path) -> None:
    adapter = served("mxbai-rerank-base-v2", write("qwen2", tmp_path))
    runtime = dict(read_config(ROWS / "mxbai-rerank-base-v2.yaml").profiles["default"].runtime)
    whole = {**runtime, "template": runtime["template"].replace("{+}", "")}
    assert deviation(score(adapter, options=whole), score(adapter, options=runtime)) > 0.001


def test_of_a_long_pair_in_parts_the_document_is_cut_and_the_words_around_it_stay(tmp_path: Path) -> None:
    card = Card(write("qwen2", tmp_path))
    adapter = served("mxbai-rerank-base-v2", tmp_path, max_sequence_length=400)
    start, end = MXBAI_ENDS
    document = "the index keeps what it has read " * 60
    before = [number for part in (start, f"query: {QUERY}", "\n") for number in card.ids(part)]
    after = [number for part in ("\n", MXBAI, end) for number in card.ids(part)]
    kept = card.ids(f"document: {document}")[: 400 - len(before) - len(after)]
    one, zero = card.logits([*before, *kept, *after], "1", "0")
    assert deviation(asked("mxbai-rerank-base-v2", adapter, [document]), [float((one - zero).sigmoid())]) <= BOUND
    with pytest.raises(InvalidInput) as refused:
        asked("mxbai-rerank-base-v2", adapter, ["short"], "long query " * 400)
    assert refused.value.param == "query.text"


def test_the_files_of_zerank_2_are_read_with_the_values_for_their_chat_template(tmp_path: Path) -> None:
    """As published: a template of `query` and `document`, one token, `add_generation_prompt` in the settings."""
    template = DIALOGUE.replace("{{ m.role }}", "{{ 'system' if m.role == 'query' else 'user' }}")
    plain = Card(write("qwen3", tmp_path / "plain"))
    transformer = cross.Transformer(
        str(tmp_path / "plain"),
        transformer_task="text-generation",
        processor_kwargs={"chat_template": template},
        processing_kwargs={"chat_template": {"add_generation_prompt": True}},
    )
    token = plain.ids("Yes")[0]
    CrossEncoder(
        modules=[transformer, cross.LogitScore(token)], device="cpu", activation_fn=torch.nn.Identity()
    ).save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    card = read_card(tmp_path / "saved")
    assert isinstance(claim_pairs(card), Claim)
    expected = [5 * np.log(p / (1 - p)) for p in (zerank(plain, QUERY, document) for document in TEXTS)]
    pairs = [(QUERY, document) for document in TEXTS]
    assert deviation(reference(tmp_path / "saved").predict(pairs, batch_size=1), expected) <= BOUND
    assert deviation(asked("zerank-2", served("zerank-2", tmp_path / "saved"), TEXTS), expected) <= BOUND
    scores = [zerank(plain, QUERY, document) for document in TEXTS]  # zerank-1 with files of this kind
    assert deviation(asked("zerank-1", served("zerank-1", tmp_path / "saved"), TEXTS), scores) <= BOUND


@pytest.mark.parametrize("odd", [{"restore_suffix": False}, {"truncation": True}, {"tools": [1]}])
def test_values_for_a_chat_template_that_change_how_a_text_is_cut_are_refused(
    odd: dict[str, Any], tmp_path: Path
) -> None:
    write("qwen3", tmp_path / "plain")
    transformer = cross.Transformer(
        str(tmp_path / "plain"), transformer_task="text-generation", processor_kwargs={"chat_template": DIALOGUE}
    )
    CrossEncoder(modules=[transformer, cross.LogitScore(7)], device="cpu").save_pretrained(
        str(tmp_path / "saved"), create_model_card=False
    )
    change_json(tmp_path / "saved/sentence_bert_config.json", processing_kwargs={"chat_template": odd})
    claim = claim_pairs(read_card(tmp_path / "saved"))
    assert isinstance(claim, NoClaim)
    assert "chat_template" in claim.reason


def test_a_language_model_whose_config_names_its_answers_is_claimed(tmp_path: Path) -> None:
    card = Card(write("qwen3", tmp_path))
    change_json(tmp_path / "config.json", classifier_from_token=["no", "yes"])
    claim = claim_pairs(read_card(tmp_path))
    assert isinstance(claim, Claim)
    assert "yes and no" in claim.reason
    expected = [qwen3(card, QUERY, document) for document in DOCUMENTS]
    assert deviation(score(serve(tmp_path)), expected) <= BOUND
    change_json(tmp_path / "config.json", classifier_from_token=["Yes"])
    template = {"template": "A: {query}\nB: {document}"}
    alone = score(serve(tmp_path), options={**template, "activation": "identity"})
    ids = card.ids(f"A: {QUERY}\nB: {DOCUMENTS[0]}")
    assert alone[0] == pytest.approx(float(card.logits(ids, "Yes")[0]), abs=BOUND)
    for odd in ([], ["a", "b", "c"], [1], "yes"):
        change_json(tmp_path / "config.json", classifier_from_token=odd)
        assert isinstance(claim_pairs(read_card(tmp_path)), NoClaim)


def test_the_lines_that_a_refusal_prints_serve_the_model(tmp_path: Path) -> None:
    card = Card(write("llama", tmp_path))
    refusal = claim_pairs(read_card(tmp_path))
    assert isinstance(refusal, NoClaim)
    assert f"\n{LINES}\n" in refusal.reason
    assert len(LINES.splitlines()) == 3
    written = yaml.safe_load(f"sie_id: acme/ranker\nweights_path: {tmp_path}\n{LINES}")
    profile = parse_config(written, source="test", folder=tmp_path).profiles["default"]
    assert profile.adapter_path == "pytorch-pairs"
    adapter = serve(tmp_path, loadtime=dict(profile.loadtime), runtime=dict(profile.runtime))
    expected = []
    for document in DOCUMENTS:
        yes, no = card.logits(card.ids(f"Query: {QUERY}\nDocument: {document}\nRelevant: "), "yes", "no")
        expected.append(float((yes - no).sigmoid()))
    assert deviation(score(adapter, options=dict(profile.runtime)), expected) <= BOUND
    with pytest.raises(ModelLoadError, match="'Ja'"):
        serve(tmp_path, loadtime={"true_token": "Ja"})


def test_a_temperature_divides_the_logits_before_the_activation(tmp_path: Path) -> None:
    adapter = serve(write("llama", tmp_path), runtime={"template": "{query} {document}"})
    options = {"template": "{query} {document}"}
    logits = score(adapter, options={**options, "activation": "identity"})
    cool = score(adapter, options={**options, "temperature": 4})
    assert deviation(cool, 1 / (1 + np.exp(-logits / 4))) <= 1e-6
    half = score(adapter, options={**options, "activation": "identity", "temperature": 0.5})
    assert deviation(half, 2 * logits) <= 1e-6


def test_a_template_with_seams_needs_its_query_and_document_once_all_the_same(tmp_path: Path) -> None:
    adapter = serve(write("llama", tmp_path), runtime={"template": "{query}{+}{document}"})
    for wrong in ("{+}{query}", "{query}{+}{document}{document}", "{query}{-}{document}"):
        with pytest.raises(InvalidInput, match=r"options\.template"):
            list(adapter.prepare([Item(text="a")], Task("score", query=Item(text="b"), options={"template": wrong})))
