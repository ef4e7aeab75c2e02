"""Runs `model.onnx`; tokenizer, options and heads are those of sie-text."""

import numpy as np
import onnxruntime
from sie_text.heads import HeadContext, TextEncoder, TextParts, build_heads
from sie_text.loading import declared_outputs
from sie_text.recipe import NotUnderstoodError, read_recipe

from sie_core.contracts import FamilyUnfitError


class OnnxEncoder(TextEncoder):
    def __init__(self, preparation, heads, session):
        super().__init__(preparation, heads)
        self._session = session
        self._inputs = [each.name for each in session.get_inputs()]

    def states(self, batch):
        places, lengths = np.arange(batch.lengths.max()), batch.lengths
        real = places < lengths[:, None]
        seen = places < (lengths if batch.key_lengths is None else batch.key_lengths)[:, None]
        ids = np.zeros(real.shape, dtype=np.int64)
        ids[real] = batch.ids
        given = {"input_ids": ids, "attention_mask": seen.astype(np.int64), "token_type_ids": np.zeros_like(ids)}
        return self._session.run(None, {name: given[name] for name in self._inputs})[0][real]


def load(context):
    card, file = context.card, context.card.path / "model.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = context.threads
    try:
        recipe = read_recipe(card, declared_outputs(context.model.config))
        parts = TextParts(context, recipe)
        heads = build_heads(recipe, HeadContext(card, parts.tokenizer, card.config["hidden_size"]))
    except NotUnderstoodError as reason:
        raise FamilyUnfitError(f"{context.model.id} is not served from its graph: {reason}.") from reason
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    preparation = parts.preparation(card.config["max_position_embeddings"])
    encoder = OnnxEncoder(preparation, heads, session)
    encoder.facts = parts.facts(encoder, heads, {"runner": "onnxruntime"}, memory_bytes=file.stat().st_size)
    return encoder
