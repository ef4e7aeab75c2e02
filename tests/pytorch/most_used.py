"""Forty of the most loaded models of the Hub: tiny weights in the layout each is published in, and what serves them.

`python -m tests.pytorch.most_used` writes the table of `docs/extend/most-used-models.md` anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForMaskedLM

from sie_core.catalog import build_catalog, choose_family, read_card
from sie_core.catalog.fetching import FetchedModel
from sie_core.catalog.loading import load_adapter
from sie_core.contracts import (
    Device,
    LoadContext,
    ModelConfig,
    ModelLoadError,
    Profile,
    ResolvedModel,
)
from sie_core.defaults import BUILTINS
from sie_core.plugins import discover
from sie_core.settings import Settings
from tests.pytorch.models import DEVIATION, HIDDEN, write_checkpoint
from tests.pytorch.pairs.support import NLI, write_classifier, write_language_model
from tests.pytorch.pairs.test_language_models import ANSWERS
from tests.pytorch.tokens.support import BIO, write_token_classifier
from tests.pytorch.vision.support import write_clip, write_siglip

PAGE = Path(__file__).parents[2] / "docs/extend/most-used-models.md"
BEGIN, END = "<!-- written by tests.pytorch.most_used -->\n", "<!-- end -->"
CPU = Device("cpu")
MODULES = "sentence_transformers.models."
SPARSE = "sentence_transformers.sparse_encoder.models."
TANH = "activation.Tanh"
NORM: tuple[str, dict[str, Any]] = ("Normalize", {})
Write = Callable[[Path], object]
"""Writes a checkpoint into a folder."""


def set_config(folder: Path, **fields: Any) -> None:
    """Set fields of `config.json`."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def auto_map(model: str, code: str = "") -> dict[str, Any]:
    """State the class of the weights' own code, and the repository that holds it."""
    return {"auto_map": {"AutoModel": f"{code}{model}"}}


def write_modules(folder: Path, package: str, *modules: tuple[str, dict[str, Any]]) -> list[Path]:
    """Write `modules.json` and the settings of each module; return their folders."""
    listed, paths = [], []
    for number, (kind, settings) in enumerate(modules):
        path = f"{number}_{kind}" if number else ""
        listed.append({"idx": number, "name": str(number), "path": path, "type": f"{package}{kind}"})
        paths.append(folder / path)
        paths[-1].mkdir(exist_ok=True)
        if settings:
            (paths[-1] / "config.json").write_text(json.dumps(settings))
    (folder / "modules.json").write_text(json.dumps(listed))
    return paths


def sentence(
    arch: str,
    *,
    pooling: str = "mean",
    dense: int = 0,
    activation: str = "linear.Identity",
    normalize: bool = True,
    **config: Any,
) -> Write:
    """Write a text encoder in sentence-transformers' layout.

    Args:
        arch: Of `tests.pytorch.models`.
        pooling: `mean`, `cls` or `lasttoken`.
        dense: Layers between pooling and norm.
        activation: Theirs, below `torch.nn.modules`.
        normalize: Whether vectors are normalised.
        config: Fields of `config.json`.
    """

    def write(folder: Path) -> None:
        write_checkpoint(arch, folder)
        set_config(folder, **config)
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64, "do_lower_case": false}')
        modes = {f"pooling_mode_{way}": way.startswith(pooling) for way in ("mean_tokens", "cls_token", "lasttoken")}
        pooled = ("Pooling", {"word_embedding_dimension": HIDDEN, **modes})
        linear = {"in_features": HIDDEN, "out_features": HIDDEN, "bias": False}
        layer = ("Dense", {**linear, "activation_function": f"torch.nn.modules.{activation}"})
        paths = write_modules(folder, MODULES, ("Transformer", {}), pooled, *[layer] * dense, *[NORM] * normalize)
        random = np.random.default_rng(1)
        for path in paths[2 : 2 + dense]:
            weight = (random.standard_normal((HIDDEN, HIDDEN)) * DEVIATION).astype(np.float32)
            save_file({"linear.weight": weight}, path / "model.safetensors")

    return write


def splade(folder: Path) -> None:
    """Write a masked language model with sentence-transformers' files of a sparse encoder."""
    write_checkpoint("bert", folder, loader=AutoModelForMaskedLM)
    pooling = {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None}
    write_modules(folder, SPARSE, ("MLMTransformer", {}), ("SpladePooling", pooling))


def colbert(folder: Path) -> None:
    """Write a BERT with the projection of Stanford's ColBERT beside its weights."""
    write_checkpoint("bert", folder)
    weights = {f"bert.{name}": weight for name, weight in load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = np.random.default_rng(1).standard_normal((16, HIDDEN)).astype(np.float32) * DEVIATION
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    set_config(folder, architectures=["HF_ColBERT"])
    (folder / "artifact.metadata").write_text(json.dumps({"query_maxlen": 24, "doc_maxlen": 64, "dim": 16}))


def nomic(**fields: Any) -> Write:
    """Write a Nomic BERT with the config of its first checkpoints, in GPT-2's names."""
    config = {
        "model_type": "nomic_bert", "activation_function": "swiglu", "n_embd": HIDDEN, "n_head": 4, "n_layer": 3,
        "n_inner": 48, "n_positions": 8192, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "vocab_size": 400,
        "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "layer_norm_epsilon": 1e-12, "prenorm": False,
        "type_vocab_size": 2, "use_rms_norm": False, "parallel_block": False, "architectures": ["NomicBertModel"],
        **auto_map("modeling_hf_nomic_bert.NomicBertModel", "nomic-ai/nomic-bert-2048--"),
    }  # fmt: skip
    plain = sentence("nomic")

    def write(folder: Path) -> None:
        plain(folder)
        (folder / "config.json").write_text(json.dumps({**config, **fields}))

    return write


JINA_BERT = {
    "architectures": ["JinaBertForMaskedLM"], "position_embedding_type": "alibi", "feed_forward_type": "geglu",
    **auto_map("modeling_bert.JinaBertModel", "jinaai/jina-bert-implementation--"),
}  # fmt: skip
JINA_LORA = {
    "lora_adaptations": ["retrieval.query"], "position_embedding_type": "rotary",
    **auto_map("modeling_lora.XLMRobertaLoRA", "jinaai/xlm-roberta-flash-implementation--"),
}  # fmt: skip
SENTIMENT = {0: "negative", 1: "neutral", 2: "positive"}
GTE_QWEN: dict[str, Any] = {"architectures": ["Qwen2ForCausalLM"], "is_causal": False, "use_sliding_window": False}

MODELS: dict[str, Write] = {
    "sentence-transformers/all-MiniLM-L6-v2": sentence("bert", architectures=["BertModel"]),
    "sentence-transformers/all-mpnet-base-v2": sentence("mpnet", architectures=["MPNetForMaskedLM"]),
    "sentence-transformers/multi-qa-mpnet-base-dot-v1": sentence("mpnet", pooling="cls", normalize=False),
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": sentence("bert", normalize=False),
    "sentence-transformers/paraphrase-multilingual-mpnet-base-v2": sentence("xlm-roberta", normalize=False),
    "sentence-transformers/distiluse-base-multilingual-cased-v2": sentence(
        "distilbert", dense=1, activation=TANH, normalize=False
    ),
    "sentence-transformers/LaBSE": sentence("bert", pooling="cls", dense=1, activation=TANH),
    "sentence-transformers/sentence-t5-base": sentence("t5", dense=1, architectures=["T5EncoderModel"]),
    "sentence-transformers/gtr-t5-base": sentence("t5", dense=1, architectures=["T5EncoderModel"]),
    "BAAI/bge-base-en-v1.5": sentence("bert", pooling="cls"),
    "BAAI/bge-reranker-v2-m3": partial(write_classifier, "xlm-roberta"),
    "intfloat/e5-base-v2": sentence("bert"),
    "intfloat/multilingual-e5-large": sentence("xlm-roberta", architectures=["XLMRobertaModel"]),
    "intfloat/e5-mistral-7b-instruct": sentence("mistral", pooling="lasttoken", architectures=["MistralModel"]),
    "Alibaba-NLP/gte-multilingual-base": sentence("new", pooling="cls"),
    "Alibaba-NLP/gte-modernbert-base": sentence("modernbert", pooling="cls", normalize=False),
    "Alibaba-NLP/gte-Qwen2-1.5B-instruct": sentence(
        "qwen2", pooling="lasttoken", **GTE_QWEN, **auto_map("modeling_qwen.Qwen2Model")
    ),
    "Alibaba-NLP/gte-reranker-modernbert-base": partial(write_classifier, "modernbert"),
    "nomic-ai/nomic-embed-text-v1.5": nomic(),
    "nomic-ai/nomic-embed-text-v2-moe": nomic(moe_every_n_layers=2, num_experts=8, moe_top_k=2),
    "jinaai/jina-embeddings-v2-base-en": sentence("bert", **JINA_BERT),
    "jinaai/jina-embeddings-v3": sentence("xlm-roberta", **JINA_LORA),
    "mixedbread-ai/mxbai-embed-large-v1": sentence("bert", pooling="cls", normalize=False),
    "mixedbread-ai/mxbai-rerank-base-v2": partial(write_language_model, "qwen2"),
    "Snowflake/snowflake-arctic-embed-l-v2.0": sentence("xlm-roberta", pooling="cls"),
    "Qwen/Qwen3-Embedding-0.6B": sentence("qwen3", pooling="lasttoken", architectures=["Qwen3ForCausalLM"]),
    "Qwen/Qwen3-Reranker-0.6B": partial(write_language_model, "qwen3"),
    "google/embeddinggemma-300m": sentence("embeddinggemma", dense=2, architectures=["Gemma3TextModel"]),
    "ibm-granite/granite-embedding-english-r2": sentence("modernbert", pooling="cls"),
    "naver/splade-v3": splade,
    "colbert-ir/colbertv2.0": colbert,
    "cross-encoder/ms-marco-MiniLM-L6-v2": partial(write_classifier, "bert"),
    "cross-encoder/nli-deberta-v3-base": partial(write_classifier, "deberta-v2", labels=NLI),
    "facebook/bart-large-mnli": partial(write_classifier, "bart", labels=NLI),
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english": partial(
        write_classifier, "distilbert", labels={0: "NEGATIVE", 1: "POSITIVE"}
    ),
    "cardiffnlp/twitter-roberta-base-sentiment-latest": partial(write_classifier, "roberta", labels=SENTIMENT),
    "dslim/bert-base-NER": partial(write_token_classifier, "bert", labels=BIO),
    "FacebookAI/xlm-roberta-large-finetuned-conll03-english": partial(
        write_token_classifier, "xlm-roberta", labels=BIO
    ),
    "openai/clip-vit-base-patch32": write_clip,
    "google/siglip-base-patch16-224": write_siglip,
}
BY_WORDS = {"Qwen/Qwen3-Reranker-0.6B", "mixedbread-ai/mxbai-rerank-base-v2"}
"""Served by the catalog's config, as their files do not say that they rank; the tiny vocabulary has other words."""


@dataclass(frozen=True, slots=True)
class Served:
    """What became of a model."""

    family: str = ""
    runner: str = ""
    precision: str = ""
    answers: str = ""
    reason: str = ""
    """Why it is not served."""


class Machine:
    """The installed plugins, as `sie models show` finds them on a machine without an accelerator."""

    def __init__(self, scratch: Path) -> None:
        settings = Settings(local_cache=scratch, models_dir=scratch, hf_fallback=False)
        self._plugins = discover(settings, BUILTINS)
        self._catalog = build_catalog(settings, self._plugins)

    def serve(self, name: str, folder: Path) -> Served:
        """Load a model in float32, by the family that wins, and the next where that finds it unfit."""
        card = read_card(folder)
        profile = Profile("default")
        model = ResolvedModel(name, ModelConfig(name, profiles={"default": profile}), profile)
        if name in BY_WORDS:
            model = self._catalog.resolve(name)
            model = replace(model, profile=replace(model.profile, loadtime={**model.profile.loadtime, **ANSWERS}))
        runners = tuple(self._plugins.runners)
        context = LoadContext(model, CPU, "float32", weights=folder, card=card, threads=1, runners=runners)
        try:
            choice = choose_family(self._plugins, model, card, CPU)
            adapter, fetched = load_adapter(FetchedModel(model, None, card, choice, ()), context, self._plugins)
        except ModelLoadError as error:
            return Served(reason=str(error))
        facts = adapter.facts
        answers = ", ".join(facts.outputs) or ", ".join(sorted(facts.operations))
        return Served(fetched.choice.family.id, facts.notes.get("runner", ""), facts.precision or "", answers)


def table(scratch: Path) -> Iterator[str]:
    """Serve every model, and write the rows of the page."""
    machine = Machine(scratch)
    yield "| model | family | runner | precision | answers, or why it is not served |"
    yield "|---|---|---|---|---|"
    for number, (name, write) in enumerate(MODELS.items()):
        (folder := scratch / f"weights-{number}").mkdir()
        write(folder)
        found = machine.serve(name, folder)
        cells = (name, found.family, found.runner, found.precision, found.answers or found.reason)
        yield f"| {' | '.join(cell or '–' for cell in cells)} |"


def page() -> str:
    """Return the page with the table that holds today."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    with TemporaryDirectory() as scratch:
        rows = "".join(f"{row}\n" for row in table(Path(scratch)))
    return f"{before}{BEGIN}{rows}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
