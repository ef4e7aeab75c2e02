"""Which weights the families claim, from their cards alone."""

from pathlib import Path
from typing import Any

import pytest
from sie_pytorch import plugin
from sie_sentence_transformers import plugin as fallback
from sie_sentence_transformers.fallback.claims import PRIORITY, claim_fallback
from sie_text.claims import claim_encoder

from sie_core.contracts import Claim, ModelCard, ModuleCard, NoClaim

ROOT = Path("/weights")
ST = "sentence_transformers.models"
IDENTITY = "torch.nn.modules.linear.Identity"


def card(
    *chain: str | tuple[str, dict[str, Any]],
    config: dict[str, Any] | None = None,
    files: tuple[str, ...] = ("tokenizer.json", "model.safetensors"),
    **sentence_transformers: Any,
) -> ModelCard:
    modules = []
    for index, entry in enumerate(chain):
        kind, settings = entry if isinstance(entry, tuple) else (entry, {})
        path = ROOT if index == 0 else ROOT / f"{index}_{kind}"
        modules.append(ModuleCard(str(index), kind if "." in kind else f"{ST}.{kind}", path, settings))
    config = {"model_type": "bert", "architectures": ["BertModel"]} if config is None else config
    return ModelCard(ROOT, config, tuple(modules), sentence_transformers, files)


def plain(model_type: str, *architectures: str) -> ModelCard:
    return card(config={"model_type": model_type, "architectures": list(architectures)})


DENSE = {"in_features": 4, "out_features": 2}
PACKED: dict[str, ModelCard] = {
    "a usual chain": card("Transformer", "Pooling", "Normalize"),
    "new class paths": card(
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    ),
    "dense": card("Transformer", "Pooling", ("Dense", DENSE), "Dropout", ("LayerNorm", {"dimension": 2}), "Normalize"),
    "text settings": card(
        (
            "Transformer",
            {
                "max_seq_length": 512,
                "do_lower_case": False,
                "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
                "module_output_name": "token_embeddings",
                "model_args": {"torch_dtype": "float16", "trust_remote_code": True},
            },
        ),
        "Pooling",
    ),
    "a decoder with modules": card(
        "Transformer",
        ("Pooling", {"pooling_mode_lasttoken": True}),
        config={"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    ),
    "plain bert": plain("bert", "BertModel"),
    "plain t5 encoder": plain("t5", "T5EncoderModel"),
    "plain gte": plain("new", "NewModel"),
}
SPARSE: dict[str, tuple[ModelCard, str]] = {
    "splade of older files": (
        card(
            "sentence_transformers.sparse_encoder.models.MLMTransformer",
            "sentence_transformers.sparse_encoder.models.SpladePooling",
            model_type="SparseEncoder",
        ),
        "its modules.json chains Transformer → SpladePooling(max of relu)",
    ),
    "splade without a type": (
        card(
            ("Transformer", {"transformer_task": "fill-mask"}),
            (
                "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling",
                {"pooling_strategy": "sum", "activation_function": "log1p_relu"},
            ),
        ),
        "its modules.json chains Transformer → SpladePooling(sum of log1p_relu)",
    ),
    "splade without modules": (plain("bert", "BertForMaskedLM"), "served as SPLADE, though its files do not say"),
}
PROJECTION = {"in_features": 32, "out_features": 16, "bias": False, "activation_function": IDENTITY}
MULTIVECTOR: dict[str, tuple[ModelCard, str]] = {
    "of pylate": (
        card("Transformer", ("pylate.models.Dense.Dense", PROJECTION), model_type="ColBERT"),
        "chains Transformer → Dense, a vector a token",
    ),
    "of sentence-transformers": (
        card(
            "Transformer",
            ("Dense", {**PROJECTION, "module_input_name": "token_embeddings"}),
            "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
            ("Normalize", {"module_input_name": "token_embeddings"}),
            model_type="MultiVectorEncoder",
        ),
        "chains Transformer → Dense → MultiVectorMask → Normalize, a vector a token",
    ),
    "of Stanford": (plain("bert", "HF_ColBERT"), "ColBERT in Stanford's layout"),
    "whose weights are not here": (
        card("Transformer", "pylate.models.Dense.Dense", files=()),
        "its modules are said to be Transformer → Dense",
    ),
}
FALLBACK: dict[str, ModelCard] = {
    "word embeddings": card("WordEmbeddings", "Pooling", config={}),
    "static embeddings": card("StaticEmbedding", config={}),
    "another pooling": card("Transformer", "WeightedLayerPooling", "Pooling"),
    "another module": card("Transformer", "Pooling", "LSTM"),
    "a module of its own": card("Transformer", "Pooling", "my_code.Module"),
    "a router": card("sentence_transformers.base.modules.router.Router", config={}),
    "a chat template": card(("Transformer", {"modality_config": {"message": {}, "text": {}}}), "Pooling"),
    "another output": card(("Transformer", {"module_output_name": "sentence_embedding"}), "Pooling"),
    "changed config": card(("Transformer", {"config_args": {"num_hidden_layers": 2}}), "Pooling"),
    "an unknown pooling": card("Transformer", ("Pooling", {"pooling_mode": "attention"})),
    "an unlisted activation": card("Transformer", "Pooling", ("Dense", {**DENSE, "activation_function": "os.system"})),
    "dense on tokens": card("Transformer", "Pooling", ("Dense", {**DENSE, "module_input_name": "token_embeddings"})),
    "a dense without sizes": card("Transformer", "Pooling", "Dense"),
    "a length that is none": card(("Transformer", {"max_seq_length": "512"}), "Pooling"),
    "a plain model of an unlisted type": plain("gpt_neox", "GPTNeoXModel"),
}
NOBODY: dict[str, ModelCard] = {
    "a sparse pooling of another kind": card(
        "Transformer", ("sentence_transformers.sparse_encoder.models.SpladePooling", {"pooling_strategy": "mean"})
    ),
    "a sparse encoder of another kind": card("Transformer", "Pooling", model_type="SparseEncoder"),
    "a projection without sizes": card("Transformer", "pylate.models.Dense.Dense"),
    "a multi-vector encoder of another kind": card("Transformer", "Pooling", model_type="MultiVectorEncoder"),
    "a cross-encoder": plain("bert", "BertForSequenceClassification"),
    "a cross-encoder with modules": card("Transformer", model_type="CrossEncoder"),
    "a language model": plain("qwen3", "Qwen3ForCausalLM"),
    "an empty folder": card(config={}, files=()),
    "a model without a tokenizer": card(
        config={"model_type": "vit", "architectures": ["ViTModel"]}, files=("model.safetensors",)
    ),
}


@pytest.mark.parametrize("case", PACKED)
def test_the_packed_family_claims_what_it_has_heads_for(case: str) -> None:
    ours, fallback = claim_encoder(PACKED[case]), claim_fallback(PACKED[case])
    assert isinstance(ours, Claim)
    assert "Pooling(" in ours.reason
    assert not isinstance(fallback, Claim) or fallback.priority < ours.priority


@pytest.mark.parametrize("case", SPARSE | MULTIVECTOR)
def test_other_encoders_are_claimed_and_never_pooled_into_dense_vectors(case: str) -> None:
    files, reason = (SPARSE | MULTIVECTOR)[case]
    claim = claim_encoder(files)
    assert isinstance(claim, Claim)
    assert reason in claim.reason
    assert claim_fallback(files) is None


def test_a_checkpoint_that_may_be_anything_is_left_to_families_that_know_better() -> None:
    splade, plain_splade = (
        claim_encoder(SPARSE[case][0]) for case in ("splade of older files", "splade without modules")
    )
    assert isinstance(splade, Claim)
    assert isinstance(plain_splade, Claim)
    assert plain_splade.priority < splade.priority


@pytest.mark.parametrize("case", FALLBACK)
def test_the_fallback_claims_the_dense_encoders_that_are_left(case: str) -> None:
    assert not isinstance(claim_encoder(FALLBACK[case]), Claim)
    claim = claim_fallback(FALLBACK[case])
    assert isinstance(claim, Claim)
    assert "padded" in claim.reason


@pytest.mark.parametrize("case", NOBODY)
def test_what_would_be_served_wrongly_is_claimed_by_nobody(case: str) -> None:
    assert not isinstance(claim_encoder(NOBODY[case]), Claim)
    assert not isinstance(claim_fallback(NOBODY[case]), Claim)


def config_of(model_type: str, architecture: str, **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": [architecture], **fields}


JINA_V3 = config_of("xlm-roberta", "XLMRobertaModel", lora_adaptations=["a"], position_embedding_type="rotary")
CHAIN = ("custom_st.Transformer", "Pooling")
REASONS: dict[str, tuple[ModelCard, str]] = {
    "a class of another kind": (
        card(config=config_of("nomic_bert", "NomicVisionModel", patch_size=16)),
        "it was saved from NomicVisionModel, which is no text encoder of the type nomic_bert",
    ),
    "jina v3 as published": (card(*CHAIN, config=JINA_V3), "Serve `jinaai/jina-embeddings-v3-hf`"),
    "an unknown module": (card("Transformer", "Pooling", "my_code.Module"), "my_code.Module, a class of its own"),
    "settings": (card(("Transformer", {"processing_kwargs": {"text": {"a": 1}}}), "Pooling"), "set processing_kwargs"),
    "named entities": (
        plain("longformer", "LongformerForTokenClassification"),
        "no token classifier of the type longformer is served",
    ),
    "a language model": (plain("qwen3", "Qwen3ForCausalLM"), "adapter_path: pytorch-pairs"),
    "GLiClass": (card(config=config_of("GLiClass", "GLiClassModel")), "classifies a text by all labels in one pass"),
    "pictures alone": (card(config=config_of("dinov2", "Dinov2Model", patch_size=14)), "it reads pictures"),
    "pictures and texts": (card(config=config_of("metaclip_2", "MetaClip2Model", vision_config={"a": 1})), "pictures"),
    "sounds": (card(config=config_of("clap", "ClapModel", audio_config={"a": 1})), "it reads sounds"),
    "another name of weights": (
        card(config=config_of("bert", "BertModel"), files=("tokenizer.json", "model.fp16.safetensors")),
        "model.fp16.safetensors is no name by which transformers looks for weights: rename it to model.safetensors",
    ),
    "parts without a list": (
        card("Transformer", "Pooling", files=("tokenizer.json", "model-00001-of-00002.safetensors")),
        "model.safetensors.index.json, which lists the parts, is missing",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_no_family_serves_is_refused_with_the_true_reason(case: str) -> None:
    files, reason = REASONS[case]
    claims = [family.claims(files) for family in (*plugin.sie_model_families(), *fallback.sie_model_families())]
    said = [claim.reason for claim in claims if isinstance(claim, NoClaim)]
    assert any(reason in each for each in said)
    claiming = [claim.priority for claim in claims if isinstance(claim, Claim)]
    # sentence-transformers may know modules that no family here has.
    assert claiming == ([PRIORITY] if files.modules and "model.safetensors" in files.files else [])


def test_a_claim_states_its_chain_and_pooling() -> None:
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    claim = claim_encoder(card("Transformer", ("Pooling", flags), "Normalize"))
    assert isinstance(claim, Claim)
    assert claim.reason == "its modules.json chains Transformer → Pooling(cls + mean) → Normalize"
