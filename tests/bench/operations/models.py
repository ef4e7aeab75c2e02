"""The models of the operations in the Hub's layout, full-sized or tiny, kept between runs.

The tokenizer, and the weights of what is MiniLM, are those of all-MiniLM-L6-v2; heads and all else are random. Biases
are set so that heads find about as much as trained ones do: random ones would weigh half the vocabulary and call every
other span an entity.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.operations.embedders import write_gemma, write_mpnet, write_qwen3
from tests.bench.operations.workload import LABELS
from tests.bench.processes.servers import weights
from tests.bench.workload.texts import make_texts

VERSION = "4"
STAMP = ".written"
THRESHOLD = "threshold.json"
"""Beside the weights of `extract`: above which probability a span counts as an entity."""
LONGEST = 256
TOKEN_DIMS = 96
WEIGHTS_A_TEXT = 150
ENTITIES_A_TEXT = 5
SPREAD = 1.0
"""Standard deviation of the logits of spans."""
SAMPLE = 16
TINY = {"hidden": 32, "heads": 2, "inner": 64, "layers": 2}
FULL = {"hidden": 768, "heads": 12, "inner": 3072, "layers": 6}
"""DistilBERT's and DeBERTa-v3-small's."""


def write_models(folder: Path, names: Sequence[str], *, tiny: bool) -> dict[str, str]:
    """Write the models of the named operations that are missing; return the folder of each."""
    import torch

    found = {}
    for name in names:
        write, target = WRITERS[name], folder / name.replace(" ", "-")
        stamp = target / STAMP
        if not stamp.is_file() or stamp.read_text() != VERSION:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            torch.manual_seed(0)
            write(target, TINY if tiny else FULL)
            stamp.write_text(VERSION)
        found[name] = str(target)
    return found


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights())
    # The file asks for rows of 128 tokens; each library states its own length.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.model_max_length = LONGEST
    return tokenizer


def _score(folder: Path, _: dict[str, int]) -> None:
    import torch
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(weights(), num_labels=1)
    torch.nn.init.normal_(model.classifier.weight, std=0.3)
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)


def _score_by_deberta(folder: Path, size: dict[str, int]) -> None:
    """Write a cross-encoder with the layers of DeBERTa-v3-small, as mxbai-rerank and many NLI models have them."""
    import torch
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

    tokenizer = _tokenizer()
    config = DebertaV2Config(**_deberta(size, len(tokenizer)), num_labels=1)
    model = DebertaV2ForSequenceClassification(config).eval()
    torch.nn.init.normal_(model.classifier.weight, std=0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _deberta(size: dict[str, int], vocabulary: int) -> dict[str, Any]:
    """Say what DeBERTa-v3-small is, with MiniLM's vocabulary."""
    # With smaller weights all texts have the same states but for rounding, with larger ones half precision is lost.
    spread = 1.4 / size["hidden"] ** 0.5
    return {
        "vocab_size": vocabulary, "hidden_size": size["hidden"], "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"], "intermediate_size": size["inner"], "relative_attention": True,
        "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False, "type_vocab_size": 0, "pad_token_id": 0, "max_position_embeddings": 512,
        "layer_norm_eps": 1e-7, "initializer_range": spread,
    }  # fmt: skip


def _sparse(folder: Path, size: dict[str, int]) -> None:
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    tokenizer = _tokenizer()
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=size["hidden"], n_layers=size["layers"], n_heads=size["heads"],
        hidden_dim=size["inner"],
    )  # fmt: skip
    model = DistilBertForMaskedLM(config).eval()
    with torch.inference_mode():
        torch.nn.init.constant_(model.vocab_layer_norm.weight, 4.0)
        inputs = tokenizer(make_texts("mixed", SAMPLE), padding=True, truncation=True, return_tensors="pt")
        logits = model(inputs["input_ids"], inputs["attention_mask"]).logits
        largest = logits.masked_fill(inputs["attention_mask"][..., None] == 0, float("-inf")).amax(1).flatten()
        rank = largest.numel() - WEIGHTS_A_TEXT * SAMPLE
        torch.nn.init.constant_(model.vocab_projector.bias, -float(largest.kthvalue(rank).values))
    base = folder.with_name(f"{folder.name}.base")
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    modules = [
        Transformer(str(base), transformer_task="fill-mask", max_seq_length=LONGEST),
        SpladePooling("max", "relu"),
    ]
    SparseEncoder(modules=modules, device="cpu").save_pretrained(str(folder), create_model_card=False)
    shutil.rmtree(base)


def _multivector(folder: Path, _: dict[str, int]) -> None:
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    body = Transformer(str(weights()), max_seq_length=LONGEST)
    width = body.get_embedding_dimension()
    project = Dense(
        width, TOKEN_DIMS, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"
    )
    modules = [body, project, MultiVectorMask([".", ","]), Normalize("token_embeddings")]
    prompts = {"query": "[Q] ", "document": "[D] "}
    model = MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts)
    model.save_pretrained(str(folder), create_model_card=False)


def _extract(folder: Path, size: dict[str, int]) -> None:
    """Write GLiNER as gliner_small-v2.1 is: its spans, its LSTM, DeBERTa inside."""
    from gliner import GLiNER

    base = folder.with_name(f"{folder.name}.base")
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(base)
    encoder = {"model_type": "deberta-v2", **_deberta(size, len(tokenizer))}
    fields = {
        "model_name": str(base), "encoder_config": encoder, "hidden_size": min(512, size["hidden"]), "max_width": 12,
        "max_len": 384, "dropout": 0.4,
    }  # fmt: skip
    model = GLiNER.from_config(fields, backbone_from_pretrained=False, local_files_only=True).eval()
    threshold = _calibrated(model)
    model.save_pretrained(folder, safe_serialization=True)
    (folder / THRESHOLD).write_text(json.dumps(threshold))
    shutil.rmtree(base)


def _calibrated(model: Any) -> float:
    """Spread the probabilities of spans as a trained model's are; return the one that few spans are above."""
    import torch

    layers = [model.model.span_rep_layer, model.model.prompt_rep_layer]
    last = [[each for each in layer.modules() if isinstance(each, torch.nn.Linear)][-1] for layer in layers]
    with torch.inference_mode():
        # Spans have much in common, and labels too: without it a text would have entities everywhere or nowhere.
        for layer, linear in zip(layers, last, strict=True):
            linear.bias.sub_(_seen(model, layer, lambda states: states.flatten(0, -2)).mean(0))
        scale = SPREAD / float(_logits(model).std())
        for parameter in last[1].parameters():
            parameter.mul_(scale)
        logits = _logits(model)
    # Spans overlap, and one of those that do is kept: six times as many must be above.
    rank = logits.numel() - 6 * ENTITIES_A_TEXT * SAMPLE
    return float(torch.sigmoid(logits.kthvalue(rank).values))


def _logits(model: Any) -> Any:
    return _seen(model, model.model, lambda output: output.logits.flatten())


def _seen(model: Any, layer: Any, read: Callable[[Any], Any]) -> Any:
    """Run the sample's texts; return what comes out of a layer, in one tensor."""
    import torch

    seen: list[Any] = []
    hook = layer.register_forward_hook(lambda _, __, output: seen.append(read(output).detach().clone()))
    model.inference(make_texts("mixed", SAMPLE), list(LABELS), threshold=0.99, batch_size=1)
    hook.remove()
    return torch.cat(seen)


WRITERS = {
    "score": _score,
    "score by DeBERTa": _score_by_deberta,
    "sparse": _sparse,
    "multivector": _multivector,
    "extract": _extract,
    "encode by Qwen3": lambda folder, size: write_qwen3(folder, _tokenizer(), tiny=size is TINY),
    "encode by Gemma": lambda folder, size: write_gemma(folder, _tokenizer(), tiny=size is TINY),
    "encode by MPNet": lambda folder, size: write_mpnet(folder, _tokenizer(), tiny=size is TINY),
}
