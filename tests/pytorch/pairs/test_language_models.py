"""Rerankers made of language models: the two tokens' odds, templates, chat templates, the conversion to classifiers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import modules as cross
from sie_text.pairs import QWEN3_INSTRUCTION, QWEN3_RERANKER

from sie_core.contracts import InvalidInput, Item, ModelLoadError, Task
from tests.pytorch.pairs.support import (
    DOCUMENTS,
    QUERY,
    change_json,
    deviation,
    pairs,
    reference,
    score,
    serve,
    write_classifier,
    write_language_model,
)

BOUND = 1e-5
MATCH, NO_MATCH = "the", "Hund"
"""Stand for the answers: words of the small vocabulary."""
ANSWERS = {"true_token": MATCH, "false_token": NO_MATCH}
DECODERS = ("qwen2", "qwen3", "mistral", "llama", "phi3", "gemma3", "gemma2")


@torch.inference_mode()
def published_scores(folder: Path, documents: Any, instruction: str, limit: int | None = None) -> list[float]:
    """Score as the page of Qwen3-Reranker does: one prompt a pair, log-softmax over two tokens of the last position."""
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    model = tf.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = [tokenizer.convert_tokens_to_ids(token) for token in (NO_MATCH, MATCH)]
    head, tail = (
        tokenizer.encode(part, add_special_tokens=False)
        for part in (QWEN3_RERANKER.split("<Instruct>")[0], QWEN3_RERANKER.split("{document}")[1])
    )
    scores = []
    for document in documents:
        text = f"<Instruct>: {instruction}\n<Query>: {QUERY}\n<Document>: {document}"
        body = tokenizer.encode(text, add_special_tokens=False)
        body = body if limit is None else body[: limit - len(head) - len(tail)]
        logits = model(torch.tensor([head + body + tail])).logits[0, -1]
        scores.append(float(logits[ids].log_softmax(0)[1].exp()))
    return scores


def test_a_plain_qwen3_is_asked_as_published(tmp_path: Path) -> None:
    folder = write_language_model("qwen3", tmp_path)
    adapter = serve(folder, loadtime=ANSWERS)
    expected = published_scores(folder, DOCUMENTS, QWEN3_INSTRUCTION)
    assert np.std(expected) > 0.01
    assert deviation(score(adapter), expected) <= BOUND
    assert deviation(score(adapter, instruction="judge"), published_scores(folder, DOCUMENTS, "judge")) <= BOUND
    told = {"default_instruction": "judge"}
    assert deviation(score(adapter, options=told), score(adapter, instruction="judge")) <= BOUND
    assert "Qwen3-Reranker" in adapter.facts.notes["template"]
    assert adapter.facts.memory_bytes < 4 * sum(
        weight.numel() for weight in tf.AutoModelForCausalLM.from_pretrained(folder).parameters()
    )


def test_of_a_long_pair_the_document_is_cut_and_the_question_stays(tmp_path: Path) -> None:
    folder = write_language_model("qwen3", tmp_path)
    adapter = serve(folder, loadtime=ANSWERS, max_sequence_length=500)
    documents = ["the index keeps what it has read " * 40, "short", "Fuchs \N{FOX FACE} " * 80]
    expected = published_scores(folder, documents, QWEN3_INSTRUCTION, limit=500)
    assert deviation(score(adapter, documents), expected) <= BOUND
    units = list(adapter.prepare([Item(text=text) for text in documents], Task("score", query=Item(text=QUERY))))
    assert [unit.truncated is not None for unit in units] == [True, False, True]
    assert units[0].tokens == 500
    from_start = score(adapter, ["cut " * 200 + "the end"], truncate="start")
    assert from_start[0] != score(adapter, ["cut " * 200 + "the end"])[0]
    with pytest.raises(InvalidInput) as refused:
        score(adapter, query="long query " * 200)
    assert (refused.value.param, refused.value.code) == ("query.text", "INPUT_TOO_LONG")
    assert "allow truncation" not in refused.value.message


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_scores_as_a_declared_logit_score_does(name: str, tmp_path: Path) -> None:
    fields = {"final_logit_softcapping": 3.0} if name == "gemma2" else {}
    write_language_model(name, tmp_path / "plain", **fields)
    transformer = cross.Transformer(str(tmp_path / "plain"), transformer_task="text-generation")
    for tokens in ((7, 9), (300,)):
        folder = tmp_path / str(len(tokens))
        CrossEncoder(modules=[transformer, cross.LogitScore(*tokens)], device="cpu").save_pretrained(
            str(folder), create_model_card=False
        )
        adapter = serve(folder)
        expected = reference(folder).predict(pairs(), activation_fn=torch.nn.Identity(), batch_size=1)
        assert expected.std() > 0.02
        assert deviation(score(adapter, options={"activation": "identity"}), expected) <= 3 * BOUND
        assert deviation(score(adapter), reference(folder).predict(pairs(), batch_size=1)) <= BOUND


def test_a_plain_checkpoint_answers_yes_or_no_or_with_the_tokens_named(tmp_path: Path) -> None:
    folder = write_language_model("llama", tmp_path)
    with pytest.raises(ModelLoadError, match="'yes'"):
        serve(folder)
    adapter = serve(folder, loadtime=ANSWERS, runtime={"template": "{query} | {document} ?"})
    assert "none" in adapter.facts.notes["template"]
    with pytest.raises(ModelLoadError, match="language model"):
        serve(write_classifier("bert", tmp_path / "bert"), loadtime=ANSWERS)


CHAT = """
{%- for message in messages if message.role == "system" -%}
<Judge> {{ message.content }}
{%- endfor -%}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}
answer:"""
STRUCTURED = """
{%- for message in messages if message.role == "system" -%}
<Judge> {{ message.content[0].text }}
{%- endfor -%}
<Query>: {{ (messages | selectattr("role", "eq", "query") | first).content[0].text }}
<Document>: {{ (messages | selectattr("role", "eq", "document") | first).content[0].text }}
answer:"""
TRIMMING = CHAT.replace("| first }}\nanswer", "| first | trim }}\nanswer")


@pytest.mark.parametrize("template", [CHAT, STRUCTURED, TRIMMING])
def test_a_chat_template_writes_the_pair_out_as_the_reference_has_it(template: str, tmp_path: Path) -> None:
    write_language_model("qwen3", tmp_path / "plain")
    transformer = cross.Transformer(
        str(tmp_path / "plain"),
        transformer_task="text-generation",
        processor_kwargs={"chat_template": template, "model_max_length": 120},
    )
    CrossEncoder(
        modules=[transformer, cross.LogitScore(7, 9)],
        device="cpu",
        prompts={"web": "well"},
        default_prompt_name="web",
    ).save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    adapter, model = serve(tmp_path / "saved"), reference(tmp_path / "saved")
    documents = [*DOCUMENTS, "\n padded \n", "the index keeps what it has read " * 40]
    assert deviation(score(adapter, documents), model.predict(pairs(documents), batch_size=1)) <= BOUND
    told = model.predict(pairs(documents), prompt="badly", batch_size=1)
    assert deviation(score(adapter, documents, instruction="badly"), told) <= BOUND
    assert adapter.facts.notes["template"] == "the tokenizer's chat template"
    change_json(tmp_path / "saved/tokenizer_config.json", chat_template=template)
    for file in ("modules.json", "config_sentence_transformers.json"):
        (tmp_path / "saved" / file).unlink()
    plain = serve(tmp_path / "saved", loadtime=ANSWERS)
    assert plain.facts.notes["template"] == "the tokenizer's chat template"


def test_a_chat_template_without_the_pair_s_roles_is_refused(tmp_path: Path) -> None:
    write_language_model("qwen3", tmp_path / "plain")
    ordinary = '{% for m in messages if m.role == "user" %}{{ m.content }}{% endfor %}'
    transformer = cross.Transformer(
        str(tmp_path / "plain"), transformer_task="text-generation", processor_kwargs={"chat_template": ordinary}
    )
    CrossEncoder(modules=[transformer, cross.LogitScore(7)], device="cpu").save_pretrained(
        str(tmp_path / "saved"), create_model_card=False
    )
    with pytest.raises(ModelLoadError, match="chat template"):
        serve(tmp_path / "saved")


def test_a_reranker_converted_to_a_classifier_is_asked_by_its_template(tmp_path: Path) -> None:
    folder = write_classifier("qwen3", tmp_path, seed=3)
    adapter = serve(folder, runtime={"template": QWEN3_RERANKER, "default_instruction": QWEN3_INSTRUCTION})
    asked = {"template": QWEN3_RERANKER, "default_instruction": QWEN3_INSTRUCTION}
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    model = tf.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for document in DOCUMENTS:
        text = QWEN3_RERANKER.format(instruction=QWEN3_INSTRUCTION, query=QUERY, document=document)
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
        with torch.inference_mode():
            expected.append(float(model(ids).logits.sigmoid()))
    assert deviation(score(adapter, options=asked), expected) <= BOUND


def test_options_that_a_profile_unsets_are_as_little_there_as_in_a_request(tmp_path: Path) -> None:
    folder = write_language_model("llama", tmp_path)
    unset = {"template": "{instruction} {query} {document}", "default_instruction": None, "score_label": None}
    adapter = serve(folder, loadtime=ANSWERS, runtime=unset)
    assert adapter.facts.operations == ("score",)
