"""GTE's `NewForSequenceClassification` under its published parameter names, which transformers has no class of."""

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from sie_text.tokenizer import load_tokenizer

from sie_core.catalog import read_card
from tests.pytorch.forward.support import PackedBatch
from tests.pytorch.forward.test_new_architecture import reference as states_of
from tests.pytorch.models import DEVIATION, HIDDEN, write_new
from tests.pytorch.pairs.support import deviation, pairs, score, serve


def write_new_classifier(folder: Path) -> dict[str, np.ndarray]:
    """Write the checkpoint; return the weights of its head."""
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    write_new(folder, prefix="new.", architectures=["NewForSequenceClassification"], **labels)
    random = np.random.default_rng(5)
    shapes = {
        "new.pooler.dense.weight": (HIDDEN, HIDDEN),
        "new.pooler.dense.bias": (HIDDEN,),
        "classifier.weight": (1, HIDDEN),
        "classifier.bias": (1,),
    }
    head = {name: (random.standard_normal(shape) * DEVIATION).astype(np.float32) for name, shape in shapes.items()}
    weights = {**load_file(folder / "model.safetensors"), **head}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return head


def test_the_published_classifier_scores_as_its_description_computes(tmp_path: Path) -> None:
    head = write_new_classifier(tmp_path)
    tokenizer = load_tokenizer(read_card(tmp_path)).origin
    rows = tokenizer(pairs(), return_token_type_ids=True)
    flat = [np.concatenate(rows[name]) for name in ("input_ids", "token_type_ids")]
    ids, types = map(torch.from_numpy, flat)
    bounds = np.cumsum([0, *map(len, rows["input_ids"])])
    states = states_of(tmp_path, PackedBatch(ids, torch.zeros_like(ids), torch.from_numpy(bounds), types=types)).numpy()
    pooled = np.tanh(states[bounds[:-1]] @ head["new.pooler.dense.weight"].T + head["new.pooler.dense.bias"])
    logits = pooled @ head["classifier.weight"].T + head["classifier.bias"]
    adapter = serve(tmp_path)
    assert deviation(score(adapter, options={"activation": "identity"}), logits[:, 0]) <= 1e-4
    assert np.std(logits) > 0.02
