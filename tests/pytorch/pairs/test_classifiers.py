"""Scores of every architecture's sequence classifier, packed or padded, against CrossEncoder on the same files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sie_cpu import plugin as kernels
from sie_pytorch.forward.specs import RUNNERS

from tests.pytorch.pairs.support import (
    CLASSIFIERS,
    DOCUMENTS,
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
GATHERED = {
    "bert": "encoder-loop",
    "roberta": "encoder-loop",
    "xlm-roberta": "encoder-loop",
    "camembert": "encoder-loop",
    "distilbert": "encoder-loop",
    "electra": "encoder-loop",
    "albert": "packed",
    "ernie": "encoder-loop",
    "modernbert": "encoder-loop",
    "nomic": "encoder-loop",
    "jina-v3": "encoder-loop",
    "eurobert": "encoder-loop",
    "qwen2": "encoder-loop",
    "qwen3": "encoder-loop",
    "mistral": "encoder-loop",
    "llama": "encoder-loop",
    "phi3": "encoder-loop",
    "gemma3": "encoder-loop",
    "mpnet": "encoder-loop",
    "deberta": "padded",
    "deberta-v2": "deberta",
    "rembert": "padded",
    "bart": "padded",
    "convbert": "padded (equal lengths)",
    "gemma2": "padded",
}
"""Every architecture with a classifier, and the runner that serves it without compiled kernels."""


def logits(folder: Path) -> np.ndarray:
    return reference(folder).predict(pairs(), activation_fn=torch.nn.Identity(), batch_size=1)


@pytest.mark.parametrize("name", GATHERED)
def test_every_architecture_scores_as_the_reference_does(name: str, tmp_path: Path) -> None:
    folder = write_classifier(name, tmp_path)
    adapter = serve(folder)
    expected = logits(folder)
    assert expected.std() > 0.02
    ours = score(adapter, options={"activation": "identity"})
    assert deviation(ours, expected) <= BOUND * max(1.0, float(np.abs(expected).max()))
    assert adapter.facts.operations == ("score",)
    assert adapter.facts.notes["runner"] == GATHERED[name]
    alone = [score(adapter, [document], options={"activation": "identity"})[0] for document in DOCUMENTS]
    assert deviation(ours, alone) <= BOUND * max(1.0, float(np.abs(expected).max()))


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "nomic"])
@pytest.mark.parametrize("runner", ["cpu-kernels", "encoder-loop", "packed", "padded"])
def test_every_runner_gives_the_same_scores(runner: str, name: str, tmp_path: Path) -> None:
    folder = write_classifier(name, tmp_path)
    specs = {spec.name: spec for spec in (*RUNNERS, *kernels.sie_runners())}
    adapter = serve(folder, runners=[specs[runner]] if runner in specs else [])
    if runner == "cpu-kernels" and adapter.facts.notes["runner"] != runner:
        pytest.skip(adapter.facts.notes["runner_reason"])
    assert adapter.facts.notes["runner"] == runner
    expected = logits(folder)
    ours = score(adapter, options={"activation": "identity"})
    assert deviation(ours, expected) <= 1e-4 * max(1.0, float(np.abs(expected).max()))


@pytest.mark.parametrize("name", ["qwen3", "mistral", "llama", "gemma3", "bert", "roberta", "bart"])
@pytest.mark.parametrize("appended", [True, False])
def test_padding_that_ends_a_pair_is_read_as_the_class_reads_it(name: str, appended: bool, tmp_path: Path) -> None:
    """The padding token is the end token, as in many language models, or a document spells it out at its end."""
    folder = write_classifier(name, tmp_path, seed=4)
    pad = {"bert": "[SEP]" if appended else "[PAD]", "roberta": "<pad>", "bart": "<pad>"}.get(name, "<pad>")
    if appended and CLASSIFIERS[name].tokenizer == "decoder":
        pad = "<eos>"
        change_json(folder / "config.json", pad_token_id=1, eos_token_id=1)
        change_json(folder / "tokenizer_config.json", pad_token=pad)
    documents = [*DOCUMENTS, f"lazy dog{pad}", f"{pad}{pad}", f"{pad} the {pad} fox {pad}{pad}"]
    adapter = serve(folder)
    for query in (QUERY, f"{pad} {QUERY}{pad}"):
        expected = reference(folder).predict(pairs(documents, query), activation_fn=torch.nn.Identity(), batch_size=1)
        ours = score(adapter, documents, query, options={"activation": "identity"})
        assert deviation(ours, expected) <= BOUND * max(1.0, float(np.abs(expected).max()))
