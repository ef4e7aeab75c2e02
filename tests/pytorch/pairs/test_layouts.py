"""Cross-encoders in every layout sentence-transformers writes or wrote, against that library on the same files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import modules as cross
from sentence_transformers.sentence_transformer import modules as st

from sie_core.contracts import InvalidInput, Item, ModelLoadError, Task
from tests.pytorch.models import HIDDEN, randomise, write_checkpoint
from tests.pytorch.pairs.support import (
    DOCUMENTS,
    MODEL,
    NLI,
    QUERY,
    change_json,
    deviation,
    pairs,
    reference,
    score,
    serve,
    write_classifier,
)

BOUND = 1e-5
IDENTITY = "torch.nn.modules.linear.Identity"


def save(folder: Path, *modules: Any, **arguments: Any) -> CrossEncoder:
    CrossEncoder(modules=list(modules), device="cpu", **arguments).save_pretrained(str(folder), create_model_card=False)
    return reference(folder)


def test_a_plain_checkpoint_s_only_score_leaves_through_a_sigmoid(tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path)
    assert deviation(score(serve(folder)), reference(folder).predict(pairs())) <= BOUND


@pytest.mark.parametrize(
    "fields",
    [
        {"sbert_ce_default_activation_function": IDENTITY},
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}},
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh", "version": "4.1.0"}},
        {"sbert_ce_default_activation_function": "their.code.Activation"},
    ],
)
def test_the_activation_of_older_files_is_applied(fields: dict[str, Any], tmp_path: Path) -> None:
    folder = write_classifier("roberta", tmp_path)
    change_json(folder / "config.json", **fields)
    adapter = serve(folder)
    assert deviation(score(adapter), reference(folder).predict(pairs())) <= BOUND
    assert ("activation" in adapter.facts.notes) == ("their" in str(fields))


@pytest.mark.parametrize("activation", [torch.nn.Sigmoid(), torch.nn.Identity(), torch.nn.GELU()])
def test_a_saved_cross_encoder_scores_as_saved(activation: torch.nn.Module, tmp_path: Path) -> None:
    write_classifier("modernbert", tmp_path / "plain")
    model = CrossEncoder(str(tmp_path / "plain"), device="cpu", activation_fn=activation, max_length=40)
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    adapter = serve(tmp_path / "saved")
    assert adapter.facts.max_sequence_length == 40
    assert deviation(score(adapter), reference(tmp_path / "saved").predict(pairs())) <= BOUND


@pytest.mark.parametrize("pooling", ["cls", "mean", ("mean", "max"), "lasttoken"])
def test_pooling_and_dense_layers_give_scores(pooling: Any, tmp_path: Path) -> None:
    base = str(write_checkpoint("electra", tmp_path / "base"))
    width = HIDDEN * (2 if isinstance(pooling, tuple) else 1)
    layers = [
        cross.Dense(width, 8),
        cross.Dense(8, 1, activation_function=torch.nn.Identity(), module_output_name="scores"),
    ]
    for seed, layer in enumerate(layers):
        randomise(layer, seed)
    model = save(tmp_path / "saved", cross.Transformer(base), st.Pooling(HIDDEN, pooling), *layers)
    adapter = serve(tmp_path / "saved")
    assert deviation(score(adapter), model.predict(pairs())) <= BOUND


def test_of_several_labels_one_is_the_score_and_softmax_is_there_for_the_asking(tmp_path: Path) -> None:
    folder = write_classifier("distilbert", tmp_path, labels=NLI)
    adapter, model = serve(folder), reference(folder)
    assert adapter.facts.notes["labels"] == "contradiction, neutral, entailment"
    expected = model.predict(pairs())
    assert deviation(score(adapter), expected[:, 2]) <= BOUND
    assert deviation(score(adapter, options={"score_label": "neutral"}), expected[:, 1]) <= BOUND
    shares = model.predict(pairs(), apply_softmax=True)
    assert deviation(score(adapter, options={"activation": "softmax"}), shares[:, 2]) <= BOUND
    with pytest.raises(InvalidInput, match="contradiction, neutral, entailment") as refused:
        score(adapter, options={"score_label": "maybe"})
    assert refused.value.param == "options.score_label"


def test_of_a_cross_encoder_s_two_labels_the_second_is_the_score(tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path, labels=2)
    change_json(folder / "config.json", sentence_transformers={"activation_fn": IDENTITY, "version": "4.1.0"})
    assert deviation(score(serve(folder)), reference(folder).predict(pairs())[:, 1]) <= BOUND


@pytest.mark.parametrize("labels", [2, 4])
def test_a_classifier_of_single_texts_scores_where_a_profile_names_the_label(labels: int, tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path, labels=labels)
    with pytest.raises(ModelLoadError, match=r"LABEL_1.*classifies single texts.*score_label") as refused:
        serve(folder)
    assert refused.value.failure == "CONFIG"
    asked = {"score_label": f"LABEL_{labels - 1}"}
    adapter = serve(folder, runtime=asked)
    assert deviation(score(adapter, options=asked), reference(folder).predict(pairs())[:, labels - 1]) <= BOUND


def test_prompts_stand_before_the_query(tmp_path: Path) -> None:
    write_classifier("bert", tmp_path / "plain")
    model = CrossEncoder(str(tmp_path / "plain"), device="cpu", prompts={"web": "web: "}, default_prompt_name="web")
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    adapter, model = serve(tmp_path / "saved"), reference(tmp_path / "saved")
    assert deviation(score(adapter), model.predict(pairs())) <= BOUND
    assert deviation(score(adapter, instruction="judge"), model.predict(pairs(), prompt="judge ")) <= BOUND


LONG = "the model reads both and the index keeps what it has read " * 12


@pytest.mark.parametrize("query", [QUERY, LONG])
@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "deberta-v2"])
def test_long_pairs_are_cut_as_the_reference_cuts_them(name: str, query: str, tmp_path: Path) -> None:
    folder = write_classifier(name, tmp_path)
    change_json(folder / "tokenizer_config.json", model_max_length=61)
    adapter = serve(folder)
    documents = [LONG, "short", LONG + "end", *DOCUMENTS]
    ours = score(adapter, documents, query)
    assert deviation(ours, reference(folder).predict(pairs(documents, query), batch_size=1)) <= BOUND
    task = Task("score", query=Item(text=query))
    units = list(adapter.prepare([Item(text=document) for document in documents], task))
    assert units[0].truncated is not None
    assert (units[0].truncated.kept, units[0].tokens, units[0].cost) == (61, 61, 61)
    assert units[0].truncated.tokens > 61
    assert (units[1].truncated is None) == (query == QUERY)


def test_the_files_may_have_the_document_alone_cut(tmp_path: Path) -> None:
    write_classifier("bert", tmp_path / "plain")
    cut_second = {"text": {"truncation": "only_second", "max_length": 48}}
    transformer = cross.Transformer(
        str(tmp_path / "plain"), transformer_task="sequence-classification", processing_kwargs=cut_second
    )
    model = save(tmp_path / "saved", transformer)
    adapter = serve(tmp_path / "saved")
    documents = [LONG, *DOCUMENTS]
    assert deviation(score(adapter, documents), model.predict(pairs(documents))) <= BOUND
    both = score(adapter, documents, QUERY * 2, options={"pair_truncation": "longest_first"})
    longest = {"text": {"truncation": "longest_first"}}
    assert deviation(both, model.predict(pairs(documents, QUERY * 2), processing_kwargs=longest)) <= BOUND
    with pytest.raises(InvalidInput) as refused:
        score(adapter, query=LONG)
    assert (refused.value.param, refused.value.code) == ("query.text", "INPUT_TOO_LONG")
    assert "allow truncation" not in refused.value.message
    with pytest.raises(InvalidInput, match="has more than"):  # the middle of so long a text is not tokenised
        score(adapter, ["the fox " * 2**14], options={"pair_truncation": "only_first"})


def test_a_request_may_have_pairs_cut_at_the_start_or_refused(tmp_path: Path) -> None:
    folder = write_classifier("bert", tmp_path)
    adapter = serve(folder, max_sequence_length=40)
    model = reference(folder, max_length=40, processor_kwargs={"truncation_side": "left"})
    assert deviation(score(adapter, [LONG], truncate="start"), model.predict(pairs([LONG]))) <= BOUND
    with pytest.raises(InvalidInput) as refused:
        score(adapter, ["short", LONG], truncate="error")
    assert (refused.value.param, refused.value.code) == ("items[1].text", "INPUT_TOO_LONG")
    shorter = score(adapter, [LONG], options={"max_seq_length": 30})
    assert deviation(shorter, reference(folder, max_length=30).predict(pairs([LONG]))) <= BOUND


@pytest.mark.parametrize(
    ("items", "query", "options", "param"),
    [
        ([Item()], Item(text="q"), {}, "items[0].text"),
        ([Item(text="a")], Item(), {}, "query.text"),
        ([Item(text="a"), Item(text="\ud800")], Item(text="q"), {}, "items[1].text"),
        ([Item(text="a")], Item(text="\ud800"), {}, "query.text"),
        ([Item(text="a")], Item(text="q"), {"max_seq_length": 4}, "options.max_seq_length"),
        ([Item(text="a")], Item(text="q"), {"activation": "softmax"}, "options.activation"),
        ([Item(text="a")], Item(text="q"), {"template": "{query} {text}"}, "options.template"),
        ([Item(text="a")], Item(text="q"), {"template": "{query"}, "options.template"),
        ([Item(text="a")], Item(text="q"), {"template": "{query} {query} {document}"}, "options.template"),
        ([Item(text="a"), Item(text="")], Item(text=""), {"template": "{query}{document}"}, "items[1].text"),
        ([Item(text="a")] * 400, Item(text="q" * 100_000), {"template": "{query} {document}"}, "query.text"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(
    items: list[Item], query: Item, options: dict[str, Any], param: str, tmp_path: Path
) -> None:
    adapter = serve(write_classifier("bert", tmp_path))
    with pytest.raises(InvalidInput) as refused:
        list(adapter.prepare(items, Task("score", query=query, options=options)))
    assert refused.value.param == param


def test_a_pair_without_a_token_is_refused(tmp_path: Path) -> None:
    folder = write_classifier("qwen2", tmp_path)
    change_json(folder / "tokenizer.json", post_processor=None)
    adapter = serve(folder)
    assert len(score(adapter, ["a", ""], query="q")) == 2
    with pytest.raises(InvalidInput, match="no token") as refused:
        score(adapter, ["a", ""], query="")
    assert refused.value.param == "items[1].text"


@pytest.mark.parametrize(
    ("file", "fields", "words"),
    [
        ("config.json", {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Threshold"}, "Threshold"),
        ("config.json", {"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM"),
    ],
)
def test_files_that_ask_for_something_else_are_refused(
    file: str, fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = write_classifier("bert", tmp_path)
    change_json(folder / file, **fields)
    with pytest.raises(ModelLoadError, match=words) as refused:
        serve(folder)
    assert refused.value.failure == "CONFIG"
    assert MODEL in str(refused.value)


def test_a_checkpoint_without_its_head_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint("bert", tmp_path)
    change_json(folder / "config.json", architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"})
    with pytest.raises(ModelLoadError, match="classifier"):
        serve(folder)
