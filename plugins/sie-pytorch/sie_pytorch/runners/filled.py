"""A forward pass over queries that are filled up, with a filling that sees the query and that nothing sees.

ColBERT's query augmentation (arXiv 2004.12832, as `MultiVectorEncoder` of sentence-transformers 6 runs it): tokens of
the filling attend to the query's and nothing attends to them, themselves included. Packed attention, in which every
token of a sequence sees all others, cannot say that; transformers' attention masks can.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sie_pytorch.runners.checkpoint import load_model
from sie_pytorch.runners.protocol import weight_bytes


class FilledPass:
    """Runs a model of its own over rows of equal length: runners keep weights in other layouts, or hide attention."""

    def __init__(self, folder: Path, precision: str, device: torch.device) -> None:
        """Load the checkpoint in `folder`.

        Raises:
            ModelLoadError: It cannot be loaded.
        """
        self._model = load_model(folder, getattr(torch, precision), device)
        if self._model._supports_sdpa:
            self._model.set_attn_implementation("sdpa")
        self._device = device
        self.memory_bytes = weight_bytes(self._model)

    def forward(self, ids: torch.Tensor, cu_seqlens: NDArray[np.int64], seen: NDArray[np.int64]) -> torch.Tensor:
        """Compute the last hidden states of every token, the filling's too.

        Args:
            ids: int64 `[total_tokens]` on the device.
            cu_seqlens: `[sequences + 1]`: where each sequence starts, the number of all tokens last.
            seen: `[sequences]`: how many leading tokens of each are attended to.

        Returns:
            `[total_tokens, hidden]` in the order of `ids`.
        """
        starts, lengths = cu_seqlens[:-1], np.diff(cu_seqlens)
        by_length: dict[int, list[int]] = defaultdict(list)
        for number, length in enumerate(lengths.tolist()):
            by_length[length].append(number)
        states: torch.Tensor | None = None
        for length, numbers in by_length.items():
            rows = torch.from_numpy(starts[numbers][:, None] + np.arange(length)).to(self._device)
            mask = torch.from_numpy(np.arange(length) < seen[numbers][:, None]).to(self._device)
            part: torch.Tensor = self._model(input_ids=ids[rows], attention_mask=mask.long()).last_hidden_state
            if len(by_length) == 1:
                return part.flatten(0, 1)
            if states is None:
                states = part.new_empty((len(ids), part.shape[-1]))
            states[rows.flatten()] = part.flatten(0, 1)
        assert states is not None
        return states
