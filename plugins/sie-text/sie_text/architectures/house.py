"""The records of the house: which model types are served, and how."""

from __future__ import annotations

from dataclasses import replace

from sie_text.architectures.record import Architecture
from sie_text.architectures.rows import (
    BERT,
    DEBERTA,
    DISTILBERT,
    GEMMA3,
    JINA,
    LLAMA,
    MISTRAL,
    MODERN_BERT,
    MPNET,
    NOMIC,
    PHI3,
    QWEN2,
    QWEN3,
    ROFORMER,
    T5,
)

DIALECTS = "sie_text.architectures.dialects"

RECORDS = (
    Architecture("albert", classifier=True),
    Architecture("bart", encoder=False, classifier=True),
    Architecture("bert", layers=BERT, classifier=True, translate=f"{DIALECTS}:bert"),
    Architecture(
        "bidirectional_pplx_qwen3",
        like="qwen3",
        translate=f"{DIALECTS}:bidirectional",
        classifier=False,
        published=frozenset({"modeling.PPLXQwen3Model"}),
    ),
    Architecture("camembert", layers=BERT, classifier=True),
    Architecture("convbert", classifier=True),
    Architecture("data2vec-text", layers=BERT),
    Architecture("deberta", classifier=True),
    Architecture("deberta-v2", layers=DEBERTA, classifier=True),
    Architecture("distilbert", layers=DISTILBERT, classifier=True),
    Architecture("electra", layers=BERT, classifier=True),
    Architecture("ernie", layers=BERT, classifier=True),
    Architecture("ernie4_5", layers=replace(LLAMA, rotary="interleaved"), encoder=False),
    Architecture(
        "eurobert",
        layers=replace(LLAMA, causal=False),
        classifier=True,
        published=frozenset(
            f"modeling_eurobert.EuroBert{kind}" for kind in ("Model", "ForMaskedLM", "ForSequenceClassification")
        ),
    ),
    Architecture("gemma", encoder=False, classifier=True),
    Architecture("gemma2", encoder=False, classifier=True),
    Architecture("gemma3_text", layers=GEMMA3, classifier=True),
    Architecture(
        "gte",
        layers=NOMIC,
        classifier=True,
        translate=f"{DIALECTS}:gte",
        published=frozenset({"modeling_hf_alibaba_nlp_gte.GteModel"}),
    ),
    Architecture("ibert"),
    Architecture("jina_embeddings_v3", layers=JINA, classifier=True),
    Architecture("llama", layers=LLAMA, classifier=True),
    Architecture(
        "llama_bidirec",
        like="llama",
        translate=f"{DIALECTS}:bidirectional",
        classifier=False,
        poolings={"avg": "mean", "cls": "cls", "last": "lasttoken"},
        published=frozenset({"llama_bidirectional_model.LlamaBidirectionalModel"}),
    ),
    Architecture("megatron-bert"),
    Architecture("mistral", layers=MISTRAL, classifier=True),
    Architecture("mobilebert"),
    Architecture("modernbert", layers=MODERN_BERT, classifier=True),
    Architecture("mpnet", layers=MPNET, classifier=True),
    Architecture("mt5", layers=T5),
    Architecture(
        "new",
        like="gte",
        translate=f"{DIALECTS}:gte",
        published=frozenset(f"modeling.New{kind}" for kind in ("Model", "ForMaskedLM", "ForSequenceClassification")),
    ),
    Architecture(
        "nomic_bert",
        layers=NOMIC,
        classifier=True,
        translate=f"{DIALECTS}:nomic_bert",
        published=frozenset(f"modeling_hf_nomic_bert.NomicBert{kind}" for kind in ("Model", "ForPreTraining")),
    ),
    Architecture("phi3", layers=PHI3, classifier=True, published=frozenset({"modeling_phi3.Phi3ForCausalLM"})),
    Architecture(
        "qwen2",
        layers=QWEN2,
        classifier=True,
        published=frozenset({"modeling_qwen.Qwen2Model"}),
        published_if={"is_causal": False, "use_sliding_window": False},
    ),
    Architecture("qwen3", layers=QWEN3, classifier=True),
    Architecture("rembert", classifier=True),
    Architecture("roberta", layers=BERT, classifier=True),
    Architecture("roberta-prelayernorm"),
    Architecture("roc_bert"),
    Architecture("roformer", layers=ROFORMER),
    Architecture("squeezebert"),
    Architecture("t5", layers=T5),
    Architecture("umt5"),
    Architecture("xlm-roberta", layers=BERT, classifier=True, translate=f"{DIALECTS}:xlm_roberta"),
    Architecture("xlm-roberta-xl", classifier=True),
    Architecture("xmod"),
)
"""Model types of transformers, and of published checkpoints that its classes compute under another name."""
