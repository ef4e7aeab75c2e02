"""The kernel runner: a post-norm encoder's layers in one call to compiled code.

It takes embeddings and rotary angles from the model's own modules and the layers' weights by the table; it knows no
architecture by name.
"""

from __future__ import annotations

import ctypes
import inspect
from typing import Any

import torch
from sie_pytorch.loop.table import ROWS
from sie_pytorch.runners import LowRank, RunnerContext, RunnerUnfitError
from sie_pytorch.runners.positions import position_rule

from sie_cpu.kernels import ACTIVATIONS, Encoder, load_kernels
from sie_cpu.packing import Packer, layers_of


class KernelRunner:
    """Runs the layers of a BERT-like encoder in the compiled kernels."""

    def __init__(self, context: RunnerContext) -> None:
        """Pack the weights of `context.model`.

        Raises:
            RunnerUnfitError: The model is not what its table row says, or no build of the kernels runs here.
        """
        model, config = context.model, context.model.config
        row = ROWS.get(config.model_type)
        if row is None:
            raise RunnerUnfitError(f"the table has no row for {config.model_type}")
        if getattr(config, "is_decoder", False):
            raise RunnerUnfitError("it is configured as a decoder")
        activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None)
        if activation not in ACTIVATIONS:
            raise RunnerUnfitError(f"its activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
        try:
            self._kernels = load_kernels(str(context.dtype).removeprefix("torch."))
        except OSError as error:
            raise RunnerUnfitError(str(error)) from error
        heads = config.num_attention_heads
        self._packer = Packer(self._kernels, heads)
        try:
            self._embeddings = model.get_submodule("embeddings")
            layers = [self._packer.layer(layer, row) for layer in model.get_submodule(row.layers)]
            norms = [layer.get_submodule(row.output_norm) for layer in model.get_submodule(row.layers)]
        except AttributeError as error:
            raise RunnerUnfitError(f"its layers are not those of its row: {error}") from error
        head_dim = model.get_submodule(row.layers)[0].get_submodule(row.query).out_features // heads
        self._layers = layers_of(layers)
        self._encoder = Encoder(
            ctypes.cast(self._layers, ctypes.POINTER(type(layers[0]))),
            len(layers),
            config.hidden_size,
            heads,
            -(-head_dim // self._packer.head_multiple) * self._packer.head_multiple,
            ACTIVATIONS[activation],
            int(row.gate is not None),
            norms[0].eps,
            head_dim**-0.5,
        )
        self._project: Any = getattr(model, "embeddings_project", None)
        self._rotary: Any = getattr(model, "rotary_emb", None)
        self._positions = position_rule(model)
        self._accepted = set(inspect.signature(self._embeddings.forward).parameters)
        self._threads = context.threads
        self._workspace = torch.empty(0, dtype=torch.uint8)

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        segment_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor,
        low_rank: LowRank | None = None,
    ) -> torch.Tensor:
        """Compute the last hidden states, in float32; see `Runner.forward`.

        Raises:
            NotImplementedError: `low_rank` is given.
        """
        if low_rank is not None:
            raise NotImplementedError("The kernel runner applies no low-rank factors; pass low_rank=None.")
        position_ids = self._positions(ids, positions)[None]
        segments = None if segment_ids is None else segment_ids[None]
        offered = {"input_ids": ids[None], "position_ids": position_ids, "token_type_ids": segments}
        states: torch.Tensor = self._embeddings(
            **{name: value for name, value in offered.items() if name in self._accepted}
        )
        if self._project is not None:
            states = self._project(states)
        cosine = sine = None
        if self._rotary is not None:
            cosine, sine = (angles[0].float().contiguous() for angles in self._rotary(states, position_ids))
        states = states[0].float().contiguous()
        offsets = cu_seqlens.to(torch.int64)
        handle, sequences = ctypes.addressof(self._encoder), len(offsets) - 1
        wanted = self._kernels.workspace_bytes(handle, offsets.data_ptr(), sequences, self._threads)
        if len(self._workspace) < wanted:
            self._workspace = torch.empty(wanted, dtype=torch.uint8)
        self._kernels.encode(
            handle,
            states.data_ptr(),
            offsets.data_ptr(),
            sequences,
            None if cosine is None else cosine.data_ptr(),
            None if sine is None else sine.data_ptr(),
            0 if cosine is None else cosine.shape[1],
            self._workspace.data_ptr(),
            self._threads,
        )
        return states
