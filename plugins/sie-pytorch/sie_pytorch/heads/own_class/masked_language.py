"""A checkpoint's own masked-language-modelling head, run on states computed elsewhere.

Its transformers class runs unchanged, with a base model that returns given states. So every part of an architecture's
head is there, tied weights included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sie_text.architectures import NONE, Records
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from sie_core.contracts import ModelLoadError
from sie_pytorch.forward.checkpoint.reading import load_config, placement, reading_as
from sie_pytorch.heads.own_class.given_states import GivenStates


class MaskedLanguageHead:
    """Maps states to logits over the vocabulary."""

    def __init__(self, model: Any) -> None:
        """Take the head of `model`, a `*ForMaskedLM`, whose base model is dropped."""
        self._given = GivenStates(model.base_model, ("embeddings",))
        setattr(model, model.base_model_prefix, self._given)
        self._model = model
        self._dtype = model.dtype
        self.dims = int(model.config.vocab_size)
        self.memory_bytes = sum(weight.nbytes for weight in {*model.parameters(), *model.buffers()})

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Turn `[tokens, hidden]` into logits `[tokens, vocabulary]`, in the precision of the weights."""
        # No class reads the values of the ids if it has the states; some read their shape.
        ids = torch.zeros((1, len(states)), dtype=torch.int64, device=states.device)
        with self._given.holding(states[None].to(self._dtype)):
            logits: torch.Tensor = self._model(input_ids=ids).logits
        return logits[0]


def load_masked_language_head(
    folder: Path, dtype: torch.dtype, device: torch.device, records: Records = NONE
) -> MaskedLanguageHead:
    """Load the head of the checkpoint in `folder`, without the layers of its transformer.

    Raises:
        ModelLoadError: `CONFIG`: transformers has no such class for its model type. `CORRUPT`: its weights are missing
            or do not fit.
    """
    config = load_config(folder, records=records)
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise ModelLoadError(
            "CONFIG", f"transformers has no masked-language-modelling head for model type {config.model_type!r}."
        )
    found = MODEL_FOR_MASKED_LM_MAPPING[type(config)]
    model_class = found[0] if isinstance(found, tuple) else found
    # One layer is built and dropped: only the embeddings and the head are read of the checkpoint.
    config.num_hidden_layers = 1
    with reading_as(model_class.__name__):
        model, report = model_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            device_map=placement(device),
            use_safetensors=True,
            local_files_only=True,
            attn_implementation="eager",
            output_loading_info=True,
        )
    wrong = sorted(str(key) for key in (*report["missing_keys"], *report["mismatched_keys"]))
    if wrong:
        raise ModelLoadError(
            "CORRUPT",
            f"The checkpoint has no whole masked-language-modelling head: as {model_class.__name__} it lacks or "
            f"misshapes {', '.join(wrong[:4])}.",
        )
    return MaskedLanguageHead(model.eval().requires_grad_(False).to(device))
