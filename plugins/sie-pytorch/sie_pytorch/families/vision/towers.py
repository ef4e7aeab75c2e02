"""The two towers of a model of images and texts: transformers' own classes, from safetensors, one batch at a time.

They take arrays of pixels and of token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from numpy.typing import NDArray
from sie_text.recipe import VISION_ARCHITECTURES
from transformers import AutoConfig, AutoModel

from sie_core.contracts import ModelLoadError, preemption_point
from sie_pytorch.families.vision.pixels import LEVELS, Pixels
from sie_pytorch.forward.checkpoint.reading import account_for, placement, reading_as
from sie_pytorch.forward.transfers import Transfers

MOST_VALUES = 2**24
"""Bound on the pixel values in one forward pass: memory on the device grows with pixels, not patches."""
MOST_VALUES_CPU = 2**23
"""The same on a CPU, where 55 pictures of 224 × 224 pixels are as fast as 111 and take half the memory."""

PREEMPTIBLE_PARTS = 8
"""Parts of such a pass, between which waiting short requests may run."""


def load_config(folder: Path) -> Any:
    """Read the config of a checkpoint.

    Raises:
        ModelLoadError: `CONFIG`: it is none of a model of images and texts.
    """
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError, StrictDataclassError) as error:
        raise ModelLoadError("CONFIG", "The checkpoint's config.json is not one that transformers reads.") from error
    if config.model_type not in VISION_ARCHITECTURES:
        raise ModelLoadError("CONFIG", f"A model of type {config.model_type!r} has no towers for images and texts.")
    return config


def load_model(folder: Path, config: Any, dtype: torch.dtype, device: torch.device, attention: str) -> Any:
    """Load both towers, in evaluation mode.

    Raises:
        ModelLoadError: `CORRUPT`: no safetensors, or weights that do not fit the class.
    """
    if not any(folder.glob("*.safetensors")):
        raise ModelLoadError("CORRUPT", "The checkpoint has no *.safetensors file, and no other format is read.")
    chosen = {} if attention == "auto" else {"attn_implementation": attention}
    with reading_as(f"{type(config).__name__.removesuffix('Config')}Model"):
        model, report = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            device_map=placement(device),
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **chosen,
        )
    account_for(model, report)
    return model.eval().requires_grad_(False).to(device)


class Towers:
    """Computes the features of texts and of images, as the model gives them, not normalised.

    Args:
        model: transformers' `CLIPModel` or `SiglipModel`.
        levels: float32 `[3, 256]`: the model's input for each level of a picture's channels.
        transfers: Copies to and from the model's device.
    """

    def __init__(self, model: Any, levels: NDArray[np.float32], transfers: Transfers) -> None:
        self._model = model
        self._transfers = transfers
        self._dtype = model.dtype
        self._levels = torch.from_numpy(levels.reshape(-1)).to(model.device)
        self._channels = LEVELS * torch.arange(3, dtype=torch.int32, device=model.device)[None, :, None, None]
        most = MOST_VALUES_CPU if model.device.type == "cpu" else MOST_VALUES
        self._chunk = max(1, most // (3 * model.config.vision_config.image_size**2))

    @property
    def patches(self) -> int:
        """Patches of a picture in the model."""
        seen = self._model.config.vision_config
        edge: int = seen.image_size // seen.patch_size
        return max(1, edge**2)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights on the device."""
        return sum(weight.nbytes for weight in (*self._model.parameters(), *self._model.buffers()))

    def texts(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None) -> torch.Tensor:
        """Compute the features of rows of equal length `[rows, tokens]`; returns `[rows, dims]`."""
        arrays = [ids.reshape(-1)] if mask is None else [ids.reshape(-1), mask.reshape(-1)]
        rows, *masks = (tensor.view(ids.shape) for tensor in self._transfers.upload(arrays))
        return _features(self._model.get_text_features(rows, attention_mask=masks[0] if masks else None))

    def images(self, pictures: Sequence[Pixels]) -> torch.Tensor:
        """Compute the features of pictures, uint8 `[3, height, width]` each; returns `[pictures, dims]`."""
        point = preemption_point()
        chunk = self._chunk if point is None else max(1, self._chunk // PREEMPTIBLE_PARTS)
        features = []
        for start in range(0, len(pictures), chunk):
            if start and point is not None:
                point()
            seen = self._seen(pictures[start : start + chunk])
            features.append(_features(self._model.get_image_features(seen)))
        return torch.cat(features)

    def _seen(self, pictures: Sequence[Pixels]) -> torch.Tensor:
        (flat,) = self._transfers.upload([np.stack(pictures)])
        places = flat.int().add_(self._channels)
        # Indexing would convert them to integers of eight bytes.
        return self._levels.index_select(0, places.view(-1)).view(places.shape).to(self._dtype)


def _features(output: Any) -> torch.Tensor:
    """Take the features of what transformers returns: a tensor, or since version 5 an output that holds it."""
    features: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
    return features
