"""Padded batches through ONNX Runtime, behind the packed interface. It takes no LoRA adapters."""

import io

import numpy as np
import onnxruntime
import torch
from sie_pytorch.forward import PaddedBatches, RunnerContext, RunnerUnfitError, Transfers, seen_tokens, weight_bytes


class _States(torch.nn.Module):
    """What is exported: token ids, a mask of keys and token types to states."""

    def __init__(self, model, takes_types):
        super().__init__()
        self.model = model
        self.takes_types = takes_types

    def forward(self, ids, mask, types):
        others = {"token_type_ids": types} if self.takes_types else {}
        return self.model(input_ids=ids, attention_mask=mask, **others).last_hidden_state


class OnnxRunner:
    """Runs the graph of a model that is exported when it is loaded."""

    def __init__(self, context: RunnerContext) -> None:
        if context.dtype is not torch.float32:
            raise RunnerUnfitError("its graph computes in float32")
        model = context.cast_model()
        model.set_attn_implementation("eager")
        self.memory_bytes = weight_bytes(model)
        self._padding = model.config.pad_token_id or 0
        self._transfers = Transfers(context.device)
        self._session = _session(_exported(model), context.threads)
        self._inputs = {each.name for each in self._session.get_inputs()}

    def forward(self, batch):
        padded = PaddedBatches.of(batch.cu_seqlens, self._transfers)
        seen = None if batch.key_lengths is None else seen_tokens(batch.cu_seqlens, batch.key_lengths)
        types = torch.zeros_like(batch.ids) if batch.types is None else batch.types
        states = []
        for part in padded.batches:
            mask = part.real if seen is None else part.pad(seen, False)
            given = {"ids": part.pad(batch.ids, self._padding), "mask": mask.long(), "types": part.pad(types, 0)}
            taken = {name: value.numpy() for name, value in given.items() if name in self._inputs}
            (found,) = self._session.run(None, taken)
            states.append(torch.from_numpy(np.ascontiguousarray(found)))
        return padded.flatten(states)


def _exported(model):
    """Export a model by tracing it; the graph's batch and length are free."""
    ids = torch.arange(18).reshape(2, 9) % model.config.vocab_size
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    names = ["ids", "mask", "types"]
    axes = {name: {0: "batch", 1: "tokens"} for name in (*names, "states")}
    graph = io.BytesIO()
    torch.onnx.export(
        _States(model, getattr(model.config, "type_vocab_size", 0) > 1), example, graph, input_names=names,
        output_names=["states"], dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip
    return graph.getvalue()


def _session(graph, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
