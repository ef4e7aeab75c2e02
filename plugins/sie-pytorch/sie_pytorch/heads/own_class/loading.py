"""Loads the head of a checkpoint's own class, and finds out by trial which states of a sequence it reads.

The class is built small — one layer, few words — with the checkpoint's head in it: the large part is the runner's. Its
own forward pass on probe sequences then shows which gathering of its base model's states gives the same logits.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sie_text.architectures import NONE, Records
from sie_text.heads import Index, find_spans, last_others
from sie_text.recipe import NotUnderstoodError
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
)

from sie_core.contracts import ModelLoadError
from sie_pytorch.forward.checkpoint.reading import load_config, reading_as
from sie_pytorch.heads.own_class.class_head import GATHERINGS, ClassHead
from sie_pytorch.heads.weights import read_rows

PROBE_LENGTHS = (7, 3, 12, 1, 6)
PROBE_PADDING = ((2, 0), (2, 4), (2, 5), (4, 4), (4, 5))
"""Sequence and place of the probe's padding tokens, which a text may spell out: some classes pass over them."""
VOCABULARY = 64
PADDING, END = 0, 1
"""Ids of the small vocabulary: no token, and the token at the end of a text, which some classes look for."""
TOLERANCE = 1e-4
"""Relative to the largest logit of the probe: both are float32."""


def load_classifier(folder: Path, records: Records = NONE) -> ClassHead:
    """Load the part of a sequence classifier after its base model.

    Raises:
        ModelLoadError: `CORRUPT`: a weight of the head is missing or misshaped.
        NotUnderstoodError: transformers has no class for it, or it reads more than its base model's last states.
    """
    config = small_config(folder, records)
    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise NotUnderstoodError(f"transformers has no sequence classifier for model type {config.model_type!r}")
    model = read_class(folder, config, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)])
    return _prove(model, config.num_labels, load_config(folder, records=records).get_text_config().pad_token_id)


def load_vocabulary_rows(folder: Path, tokens: Sequence[int], records: Records = NONE) -> ClassHead:
    """Load only the rows of a causal language model's head for the logits of `tokens`, in their order.

    Raises:
        ModelLoadError: `CORRUPT`: the weights of the head are missing. `CONFIG`: a token is not in the vocabulary.
        NotUnderstoodError: transformers has no class for it, or its logits are no projection of the last state.
    """
    config = small_config(folder, records)
    tied = config.tie_word_embeddings
    config.tie_word_embeddings = False
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise NotUnderstoodError(f"transformers has no causal language model for model type {config.model_type!r}")
    model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]._from_config(config, attn_implementation="eager").eval()
    head = model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear):
        raise NotUnderstoodError(f"the head of {type(model).__name__} is no linear layer")
    name = "embed_tokens.weight" if tied else "lm_head.weight"
    weight = read_rows(folder, name, tokens)
    if weight.shape != (len(tokens), config.hidden_size):
        raise ModelLoadError("CORRUPT", f"{name} has rows of {weight.shape[1]} numbers, not {config.hidden_size}.")
    bias = None if head.bias is None else read_rows(folder, "lm_head.bias", tokens)
    head.weight = torch.nn.Parameter(weight, requires_grad=False)
    head.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
    head.out_features = len(tokens)
    return _prove(model, len(tokens))


def small_config(folder: Path, records: Records) -> Any:
    """Read the config of a checkpoint with one layer and few words, labels as written."""
    config = copy.deepcopy(load_config(folder, records=records))
    written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if "id2label" in written:
        config.id2label = {int(number): str(label) for number, label in written["id2label"].items()}
        config.label2id = written.get("label2id") or {label: number for number, label in config.id2label.items()}
    config.num_hidden_layers = 1
    if getattr(config, "decoder_layers", None):
        config.decoder_layers = 1
    config.vocab_size = VOCABULARY
    if getattr(config, "intermediate_size", None):
        config.intermediate_size = VOCABULARY
    config.pad_token_id, config.eos_token_id = PADDING, END
    return config


def read_class(folder: Path, config: Any, model_class: Any) -> Any:
    """Read a class with a head in float32, as small as `config`; the head is the checkpoint's.

    Raises:
        ModelLoadError: `CORRUPT`: a weight of the head is missing or misshaped.
    """
    with reading_as(model_class.__name__):
        model, report = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            attn_implementation="eager",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    _require_head(model, report)
    return model


def _require_head(model: Any, report: Any) -> None:
    """Refuse an incomplete head: transformers would initialise the missing weights at random.

    Raises:
        ModelLoadError: `CORRUPT`, naming some of them.
    """
    bad = [str(key) for key in report["missing_keys"]]
    bad += [str(key[0] if isinstance(key, tuple) else key) for key in report["mismatched_keys"]]
    prefix = f"{model.base_model_prefix}."
    wanted = sorted(key for key in bad if not key.startswith(prefix) or key.startswith(f"{prefix}pooler"))
    if wanted:
        raise ModelLoadError(
            "CORRUPT",
            f"The checkpoint has no head for {type(model).__name__}: it lacks or misshapes {', '.join(wanted[:4])}.",
        )


def probe_sequences() -> list[torch.Tensor]:
    """Make sequences `[1, tokens]` of the small vocabulary, with padding and end tokens that a text may spell out."""
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(END + 1, VOCABULARY, (1, length), generator=generator) for length in PROBE_LENGTHS]
    for ids in sequences:
        ids[0, -3 if ids is sequences[-1] else -1] = END
    for number, place in PROBE_PADDING:
        sequences[number][0, place] = PADDING
    return sequences


def agrees(logits: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether logits of the probes are those of the full class."""
    return bool(logits.sub(wanted).abs().max() <= TOLERANCE * wanted.abs().max().clamp(min=1e-3))


@torch.inference_mode()
def _prove(model: Any, labels: int, padding: int | None = None) -> ClassHead:
    """Find which states (first, last, mean, all) reproduce the full class; `padding` is the checkpoint's token."""
    sequences = probe_sequences()
    model.eval().requires_grad_(False)
    try:
        given = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in sequences]
        wanted = torch.cat([model(**each, use_cache=False).logits.flatten(0, -2)[-1:] for each in given])
        states = torch.cat([model.base_model(**each).last_hidden_state[0] for each in given])
    except Exception as error:  # a class may want anything: it is then none of ours
        raise NotUnderstoodError(f"{type(model).__name__} does not classify token ids alone") from error
    bounds = np.concatenate(([0], np.cumsum(PROBE_LENGTHS)))
    flat = torch.cat(sequences, dim=1)[0].numpy()
    for gathering in GATHERINGS:
        head = ClassHead(model, gathering, labels, padding)
        lasts = last_others(flat, bounds, PADDING) if gathering == "unpadded" else None
        spans = find_spans(bounds, np.zeros_like(bounds[1:]), _as_they_are, lasts)
        if agrees(head(states, spans), wanted):
            return head
    raise NotUnderstoodError(f"{type(model).__name__} reads more than the last states of its base model")


def _as_they_are(arrays: Sequence[Index]) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]
