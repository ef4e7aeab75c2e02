"""What a request may ask of a token classifier, and how it is refused; claims, facts and labels of checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from sie_pytorch import plugin
from sie_pytorch.families.tokens.loading import load
from sie_text.claims import claim_token_classifier
from sie_text.entities import preparation

from sie_core.catalog import read_card
from sie_core.contracts import Adapter, Claim, InvalidInput, Item, ModelLoadError, NoClaim, Task
from tests.pytorch.encoders import context
from tests.pytorch.pairs.support import ask
from tests.pytorch.tokens.support import (
    BIO,
    LABELLING,
    Reference,
    assert_same,
    extract,
    odd_texts,
    write_token_classifier,
    write_word_pieces,
)

LONG = "the quick brown fox jumps over the lazy dog and ranks every document, " * 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_token_classifier("bert", tmp_path_factory.mktemp("bert"), tokenizer=write_word_pieces)


@pytest.fixture(scope="module")
def adapter(folder: Path) -> Adapter:
    return load(context(folder))


def test_the_facts_name_runner_labels_and_window(adapter: Adapter) -> None:
    facts = adapter.facts
    assert (facts.operations, facts.takes_labels, facts.classes) == (("extract",), "optional", ())
    assert (facts.precision, facts.notes["runner"]) == ("float32", "encoder-loop")
    assert facts.notes["labels"] == "PER, LOC"
    assert facts.max_sequence_length == 96
    assert "96 tokens" in facts.notes["window"]


@pytest.mark.parametrize("name", LABELLING)
def test_one_family_claims_a_checkpoint_and_says_what_it_labels(name: str, tmp_path: Path) -> None:
    card = read_card(write_token_classifier(name, tmp_path))
    claims = {family.id: family.claims(card) for family in plugin.sie_model_families()}
    claim = claims.pop("pytorch-tokens")
    assert isinstance(claim, Claim)
    assert f"{card.architectures[0]}, which labels the tokens of a text: O, B-PER, I-PER" in claim.reason
    assert not any(isinstance(other, Claim) for other in claims.values())


@pytest.mark.parametrize(
    ("model_type", "saved", "said"),
    [
        ("longformer", "LongformerForTokenClassification", "no token classifier of the type longformer is served"),
        ("bert", "BertCrfForTokenClassification", "not transformers' token classifier of bert"),
        ("new", "NewTaggerForTokenClassification", "not transformers' token classifier of new"),
    ],
)
def test_classes_of_others_are_refused_by_name(model_type: str, saved: str, said: str, folder: Path) -> None:
    card = read_card(folder)
    other = replace(card, config={**card.config, "model_type": model_type, "architectures": [saved]})
    claim = claim_token_classifier(other)
    assert isinstance(claim, NoClaim)
    assert said in claim.reason


def test_a_text_is_never_cut_and_each_window_counts_its_tokens(adapter: Adapter) -> None:
    units = list(adapter.prepare([Item(text=LONG), Item(text="fox")], Task("extract", truncate="error")))
    assert [unit.item for unit in units] == [0] * (len(units) - 1) + [1]
    assert len(units) > 3
    assert {unit.cost for unit in units[:-1]} == {96}
    assert all(unit.truncated is None and unit.tokens == unit.cost for unit in units)
    assert len({unit.key for unit in units}) == 1
    kept = sum(unit.nbytes for unit in units)
    assert kept >= sum(unit.payload.nbytes for unit in units) + 8 * len(LONG.split())


def test_requests_that_ask_for_different_things_share_a_batch(adapter: Adapter) -> None:
    tasks = [
        Task("extract", labels=("PER",), options={"aggregation_strategy": "average"}),
        Task("extract", options={"threshold": 0.7, "max_seq_length": 20}),
        Task("extract", options={"aggregation_strategy": "none"}),
    ]
    texts = [LONG, "the lazy dog", "a query is short"]
    units = [unit for task in tasks for unit in adapter.prepare([Item(text=text) for text in texts], task)]
    outputs = adapter.finish(units, adapter.run(units))
    place = 0
    for task in tasks:
        for item, text in enumerate(texts):
            count = len(list(adapter.prepare([Item(text=text)], task)))
            own, made = units[place : place + count], outputs[place : place + count]
            assert {unit.item for unit in own} == {item}
            place += count
            (alone,) = ask(adapter, [Item(text=text)], task)
            found = adapter.combine(own, made)
            assert [(each.start, each.end, each.label) for each in found.entities or ()] == [
                (each.start, each.end, each.label) for each in alone.entities or ()
            ]


def test_labels_and_threshold_choose_among_what_the_pipeline_finds(adapter: Adapter, folder: Path) -> None:
    reference, texts = Reference(folder), [*odd_texts(40)[:20], "the lazy dog jumps over Ada"]
    texts = [text for text in texts if reference.fits(text)]
    for text, spans in zip(texts, extract(adapter, texts, ["LOC"], threshold=0.6), strict=True):
        wanted = [each for each in reference.spans(text, "simple") if each.label == "LOC" and each.score > 0.6]
        assert_same(spans, wanted)


def test_a_request_may_have_another_window(adapter: Adapter, folder: Path) -> None:
    reference = Reference(folder, 20)
    (spans,) = extract(adapter, [LONG], max_seq_length=20)
    assert_same(spans, reference.windowed(LONG, "simple"))


@pytest.mark.parametrize("style", ["bert", "qwen3"])
def test_a_text_without_tokens_has_no_entities(style: str, tmp_path: Path) -> None:
    folder = write_token_classifier(style, tmp_path)
    if style == "qwen3":  # as of decoders that put no special token around a text
        file = folder / "tokenizer.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "post_processor": None}))
    adapter = load(context(folder))
    assert extract(adapter, ["", "", ""]) == [[], [], []]
    (blank, _) = adapter.prepare([Item(text=""), Item(text="fox")], Task("extract"))
    assert (blank.cost, blank.tokens) == ((2, 2) if style == "bert" else (1, 0))
    (none, some) = extract(adapter, ["", "fox jumps over the lazy dog"])
    assert not none
    assert some


@pytest.mark.parametrize(
    ("item", "fields", "param"),
    [
        (Item(), {}, "items[0].text"),
        (Item(token_ids=(5, 6)), {}, "items[0].text"),
        (Item(text="a \ud800"), {}, "items[0].text"),
        (Item(text="a"), {"labels": ("B-PER",)}, "labels"),
        (Item(text="a"), {"instruction": "find names"}, "instruction"),
        (Item(text="a"), {"options": {"max_seq_length": 2}}, "options.max_seq_length"),
        (Item(text="a"), {"options": {"max_seq_length": 97}}, "options.max_seq_length"),
    ],
)
def test_what_cannot_be_answered_names_its_field(
    item: Item, fields: dict[str, Any], param: str, adapter: Adapter
) -> None:
    with pytest.raises(InvalidInput) as refused:
        list(adapter.prepare([item], Task("extract", **fields)))
    assert refused.value.param == param


def test_averages_over_a_whole_book_are_refused_before_they_fill_the_memory(
    adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "MOST_PROBABILITIES", 200 * len(BIO))
    with pytest.raises(InvalidInput, match="200 are averaged over the 5 labels") as refused:
        extract(adapter, [LONG], aggregation_strategy="average")
    assert refused.value.param == "options.aggregation_strategy"
    assert extract(adapter, [LONG], aggregation_strategy="max") != [[]]
    assert extract(adapter, [LONG[:200]], aggregation_strategy="average") != [[]]


def test_a_profile_has_its_own_defaults_and_a_wrong_one_fails_the_load(folder: Path) -> None:
    strict = load(context(folder, runtime={"aggregation_strategy": "first", "threshold": 0.9}))
    assert strict.facts.operations == ("extract",)
    with pytest.raises(ModelLoadError, match=r"Profile 'default': runtime\.max_seq_length is 1000"):
        load(context(folder, runtime={"max_seq_length": 1000}))


def test_a_head_that_is_not_there_is_not_made_up(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["classifier.bias"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"lacks or misshapes classifier\.bias") as failed:
        load(context(tmp_path))
    assert failed.value.failure == "CORRUPT"


def test_code_of_the_weights_is_refused_unless_it_is_ignored(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoModelForTokenClassification": "modeling_own.Own"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match=r"modeling_own\.Own"):
        load(context(tmp_path))
    assert "auto_map" in load(context(tmp_path, loadtime={"auto_map": "ignore"})).facts.notes


def test_labels_without_names_are_numbered_as_transformers_does(tmp_path: Path) -> None:
    names = ("LABEL_0", "LABEL_1")
    folder = write_token_classifier("distilbert", tmp_path, labels=names)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if name not in ("id2label", "label2id")})
    )
    adapter, reference = load(context(folder)), Reference(folder)
    assert adapter.facts.notes["labels"] == "LABEL_0, LABEL_1"
    (spans,) = extract(adapter, ["the lazy dog jumps"])
    assert_same(spans, reference.spans("the lazy dog jumps", "simple"))


def test_a_lora_adapter_changes_the_labels_as_peft_does(folder: Path, tmp_path: Path) -> None:
    base = tf.AutoModelForTokenClassification.from_pretrained(str(folder)).eval()
    config = peft.LoraConfig(r=4, target_modules=["query", "value"], init_lora_weights=False)
    tuned = peft.get_peft_model(base, config)
    tuned.save_pretrained(str(tmp_path))
    adapter, text = load(context(folder)), "the lazy dog jumps over every document"
    assert adapter.facts.takes_lora
    lora = adapter.load_lora("tuned", tmp_path)
    (output,) = ask(adapter, [Item(text=text)], Task("extract", options={"aggregation_strategy": "none"}, lora=lora))
    read = Reference(folder).tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        scores = tuned(**read).logits[0].softmax(dim=-1)[1:-1].numpy()
    found = {(each.label, round(each.score, 4)) for each in output.entities or ()}
    wanted = {(BIO[row.argmax()], round(float(row.max()), 4)) for row in scores if row.argmax()}
    assert {label for label, _ in found} == {label for label, _ in wanted}
    assert np.allclose(sorted(score for _, score in found), sorted(score for _, score in wanted), atol=2e-4)
