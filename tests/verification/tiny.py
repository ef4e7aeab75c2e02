"""A tiny model with random weights for every head and architecture, as folders and configs that a server finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from sentence_transformers import CrossEncoder, SparseEncoder
from sentence_transformers.cross_encoder import modules as cross
from sentence_transformers.sentence_transformer import modules as st
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from transformers import AutoModelForMaskedLM, AutoTokenizer

from tests.gliner.library import library
from tests.pytorch.encoders import write_encoder
from tests.pytorch.heads.bge_m3 import save_bge_m3
from tests.pytorch.heads.colbert import EXPANSION, write_colbert
from tests.pytorch.heads.splade import write_splade
from tests.pytorch.models import ARCHITECTURES, HIDDEN, MASKED_LANGUAGE, VOCABULARY, randomise, write_checkpoint
from tests.pytorch.pairs.support import NLI, write_classifier, write_language_model
from tests.pytorch.pairs.test_classifiers import GATHERED
from tests.pytorch.pairs.test_language_models import ANSWERS, CHAT, DECODERS
from tests.pytorch.tokens.support import write_token_classifier
from tests.pytorch.vision.support import WRITERS
from tests.text.tables import table, write_model2vec, write_static_embedding

PROMPTS = {"query": "query: ", "document": "text: "}
LENGTH = 72
"""Tokens: the longest text is beyond it, and no slow architecture sees more."""
TEMPLATE = "<Query>: {query} <Document>: {document} is it so?"

TAGGED = ("bert", "roberta", "deberta-v2", "modernbert", "qwen3", "t5")
SAMPLED = ("bert", "deberta-v2", "modernbert", "mpnet", "qwen3", "t5", "xlm-roberta")
"""Architectures of each runner, for every head; that each head has each architecture, tests of sie-pytorch show."""
CLASSES = {0: "negative", 1: "neutral", 2: "positive"}

Write = Callable[[Path], object]
SIMILARITIES = (None, "euclidean", "dot", "manhattan", "cosine")


@dataclass(frozen=True)
class Tiny:
    """How a model is written, and what its config says beside where it is."""

    write: Write
    runtime: Mapping[str, Any] = field(default_factory=dict)
    loadtime: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    family: str | None = None

    def config(self, name: str, folder: Path) -> dict[str, Any]:
        options = {"runtime": dict(self.runtime), "loadtime": dict(self.loadtime)}
        profile = {"adapter_options": options, **({"adapter_path": self.family} if self.family else {})}
        return {"sie_id": name, "weights_path": str(folder), "profiles": {"default": profile}, **self.fields}


def _base(name: str, folder: Path, **arguments: Any) -> Path:
    base = folder.with_name(f"base-{name}-{len(arguments)}")
    return base if base.exists() else write_checkpoint(name, base, **arguments)


def _dense(name: str) -> Write:
    poolings = {"lasttoken": ARCHITECTURES[name].causal, "cls": name in {"bert", "modernbert"}}
    pooling = next((mode for mode, fits in poolings.items() if fits), "mean")
    steps = [st.Normalize()] if len(name) % 2 else []
    compared = SIMILARITIES[list(ARCHITECTURES).index(name) % len(SIMILARITIES)]
    return lambda folder: write_encoder(
        _base(name, folder),
        folder,
        st.Pooling(HIDDEN, pooling),
        *steps,
        length=LENGTH,
        prompts=PROMPTS,
        similarity_fn_name=compared,
    )


def _sparse(name: str) -> Write:
    return lambda folder: write_splade(
        _base(name, folder, loader=AutoModelForMaskedLM), folder, length=LENGTH, prompts=PROMPTS
    )


def _looked_up(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(_base("bert", folder)))
    weights = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(5))
    static = SparseStaticEmbedding(tokenizer, weights)
    SparseEncoder(modules=[static], device="cpu").save_pretrained(str(folder), create_model_card=False)


def _multivector(name: str) -> Write:
    fills = ARCHITECTURES[name].tokenizer != "t5" and name != "convbert"
    return lambda folder: write_colbert(_base(name, folder), folder, expansion=EXPANSION if fills else None)


def _bge_m3(name: str) -> Write:
    return lambda folder: save_bge_m3(_base(name, folder), folder)


def _classifier(name: str, labels: Any, **config: Any) -> Tiny:
    return Tiny(
        lambda folder: write_classifier(name, folder, labels=labels, **config), fields={"max_sequence_length": LENGTH}
    )


def _entities(name: str, runtime: Mapping[str, Any] | None = None) -> Tiny:
    return Tiny(
        lambda folder: write_token_classifier(name, folder), runtime or {}, fields={"max_sequence_length": LENGTH}
    )


def _answers(name: str, **arguments: Any) -> Write:
    def write(folder: Path) -> None:
        plain = write_language_model(name, folder.with_name(f"{folder.name}-base"))
        transformer = cross.Transformer(str(plain), transformer_task="text-generation", **arguments)
        model = CrossEncoder(modules=[transformer, cross.LogitScore(7, 9)], device="cpu")
        model.save_pretrained(str(folder), create_model_card=False)

    return write


def _pooled_scores(folder: Path) -> None:
    layers = [
        cross.Dense(HIDDEN, 8),
        cross.Dense(8, 1, activation_function=torch.nn.Identity(), module_output_name="scores"),
    ]
    for seed, layer in enumerate(layers):
        randomise(layer, seed)
    chain = [cross.Transformer(str(_base("electra", folder))), st.Pooling(HIDDEN, "mean"), *layers]
    CrossEncoder(modules=chain, device="cpu").save_pretrained(str(folder), create_model_card=False)


def _gliner(kind: str, encoder: str = "bert") -> Tiny:
    asked = {"relation_labels": ["name of"], "relation_threshold": 0.6, "threshold": 0.6} if "relex" in kind else {}
    return Tiny(lambda folder: _moved(library().write(folder, kind, encoder), folder), runtime=asked)


def _moved(written: Path, folder: Path) -> None:
    for file in written.iterdir():
        file.rename(folder / file.name)


TINY: dict[str, Tiny] = {
    **{f"tiny/dense-{name}": Tiny(_dense(name)) for name in ARCHITECTURES},
    **{f"tiny/sparse-{name}": Tiny(_sparse(name)) for name in SAMPLED if name in MASKED_LANGUAGE},
    **{f"tiny/multivector-{name}": Tiny(_multivector(name)) for name in SAMPLED},
    **{f"tiny/bge-m3-{name}": Tiny(_bge_m3(name)) for name in SAMPLED if not ARCHITECTURES[name].causal},
    **{f"tiny/pairs-{name}": _classifier(name, 1) for name in SAMPLED if name in GATHERED},
    **{f"tiny/labels-{name}": _classifier(name, NLI) for name in ("bert", "roberta", "deberta-v2", "qwen3", "bart")},
    **{f"tiny/classes-{name}": _classifier(name, CLASSES) for name in SAMPLED if name in GATHERED},
    **{f"tiny/entities-{name}": _entities(name) for name in TAGGED},
    **{
        f"tiny/entities-{way}": _entities("bert", {"aggregation_strategy": way}) for way in ("first", "average", "none")
    },
    "tiny/classes-each-by-itself": _classifier("bert", CLASSES, problem_type="multi_label_classification"),
    "tiny/classes-numbers": _classifier("bert", CLASSES, problem_type="regression"),
    **{f"tiny/answers-{name}": Tiny(_answers(name), fields={"max_sequence_length": 300}) for name in DECODERS},
    "tiny/chat-qwen3": Tiny(_answers("qwen3", processor_kwargs={"chat_template": CHAT})),
    "tiny/asked-qwen3": Tiny(
        lambda folder: write_language_model("qwen3", folder),
        {"template": TEMPLATE},
        ANSWERS,
        {"max_sequence_length": 200},
        "pytorch-pairs",
    ),
    "tiny/seams-qwen3": Tiny(
        lambda folder: write_language_model("qwen3", folder),
        {"template": "query: {query}{+}\n{+}document: {document}{+}\n{+}relevance:", "temperature": 3},
        {"true_token": ANSWERS["true_token"]},
        {"max_sequence_length": 200},
        "pytorch-pairs",
    ),
    "tiny/pooled-electra": Tiny(_pooled_scores),
    "tiny/templates-bert": Tiny(
        _dense("bert"),
        {"query_template": "Instruct: {instruction}\nQuery: {text}", "default_instruction": "find", "normalize": True},
        fields={"max_sequence_length": 40},
    ),
    "tiny/static-plain": Tiny(lambda folder: write_static_embedding(folder, prompts=PROMPTS), {"max_seq_length": 50}),
    "tiny/static-normalized": Tiny(
        lambda folder: write_static_embedding(folder, normalize=True, similarity_fn_name="dot"),
        fields={"max_sequence_length": LENGTH},
    ),
    "tiny/static-sparse": Tiny(_looked_up),
    "tiny/model2vec-plain": Tiny(lambda folder: write_model2vec(folder, normalize=False, max_length=100)),
    "tiny/model2vec-normalized": Tiny(
        write_model2vec, {"query_template": "find : {text}"}, fields={"max_sequence_length": LENGTH}
    ),
    "tiny/model2vec-bytes": Tiny(
        lambda folder: write_model2vec(folder, tensors={"embeddings": (table() * 20).astype(np.int8)})
    ),
    **{f"tiny/pictures-{name}": Tiny(write) for name, write in WRITERS.items()},
    # Every kind and encoder is held against gliner in tests of sie-gliner; here each sort of answer.
    "tiny/gliner-span": _gliner("span"),
    "tiny/gliner-relex-pairs": _gliner("relex-pairs"),
    "tiny/gliner-token-modernbert": _gliner("token", "modernbert"),
}
"""By the id each is served under."""


class Shelf:
    """A folder of model configs whose weights are written when they are first wanted."""

    def __init__(self, folder: Path) -> None:
        self.models_dir = folder / "models"
        self._weights = folder / "weights"
        self.models_dir.mkdir(parents=True)
        self._written: set[str] = set()
        for name, tiny in TINY.items():
            file = self.models_dir / f"{name.replace('/', '-')}.yaml"
            file.write_text(yaml.safe_dump(tiny.config(name, self.weights(name))))

    def weights(self, name: str) -> Path:
        return self._weights / name.replace("/", "-")

    def write(self, name: str) -> Path:
        folder = self.weights(name)
        if name not in self._written:
            folder.mkdir(parents=True)
            TINY[name].write(folder)
            self._written.add(name)
        return folder
