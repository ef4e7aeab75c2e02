"""A checkpoint's own class for token classification without its base model, on states computed elsewhere.

The class's own forward pass runs, so whatever stands before its last layer is there, for every architecture.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from sie_text.architectures import NONE, Records
from sie_text.recipe import NotUnderstoodError
from transformers.models.auto.modeling_auto import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING

from sie_pytorch.heads.own_class.given_states import GivenStates
from sie_pytorch.heads.own_class.loading import agrees, probe_sequences, read_class, small_config


class TokenClassHead:
    """The part of a class for token classification after its base model, in float32."""

    def __init__(self, model: Any) -> None:
        """Share the modules of `model`, which is in evaluation mode, but its base model."""
        self._given = GivenStates(model.base_model, ())
        self._model = copy.copy(model)
        self._model._modules = {**model._modules, model.base_model_prefix: self._given}
        self.labels = int(model.config.num_labels)
        self.memory_bytes = sum(weight.nbytes for weight in self._model.parameters())

    def to(self, device: torch.device) -> TokenClassHead:
        """Move it to `device`."""
        self._model.to(device)
        return self

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Turn `[tokens, hidden]`, of any texts, into float32 logits `[tokens, labels]`."""
        # No class reads the values of the ids; some read their shape.
        ids = torch.zeros((1, len(states)), dtype=torch.int64, device=states.device)
        with self._given.holding(states[None].float()):
            logits: torch.Tensor = self._model(input_ids=ids).logits
        return logits[0]


def load_token_classifier(folder: Path, records: Records = NONE) -> TokenClassHead:
    """Load the part of a token classifier after its base model.

    Raises:
        ModelLoadError: `CORRUPT`: a weight of the head is missing or misshaped.
        NotUnderstoodError: transformers has no class for it, or its logits of a token depend on more than its state.
    """
    config = small_config(folder, records)
    if type(config) not in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING:
        raise NotUnderstoodError(f"transformers has no token classifier for model type {config.model_type!r}")
    model = read_class(folder, config, MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING[type(config)])
    return _prove(model.eval().requires_grad_(False))


@torch.inference_mode()
def _prove(model: Any) -> TokenClassHead:
    """Check that the states of several texts, one after another, give the logits of the full class."""
    try:
        given = [{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in probe_sequences()]
        wanted = torch.cat([model(**each).logits[0] for each in given])
        states = torch.cat([model.base_model(**each).last_hidden_state[0] for each in given])
        head = TokenClassHead(model)
        found = head(states)
    except Exception as error:  # a class may want anything: it is then none of ours
        raise NotUnderstoodError(f"{type(model).__name__} does not label token ids alone") from error
    if not agrees(found, wanted):
        raise NotUnderstoodError(f"{type(model).__name__} reads more than the last state of a token")
    return head
