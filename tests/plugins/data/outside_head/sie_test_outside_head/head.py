"""The mean of a text's states through a linear layer, whose weights lie in `mood.safetensors`."""

import torch
from sie_pytorch.heads import Head, compose, find_spans, pool, read_named
from sie_text.recipe import read_recipe

from sie_core.contracts import Classification, ItemOutput, ModelLoadError


class MoodHead(Head):
    output = "classifications"

    def __init__(self, context):
        layer = read_named(context.card.path / "mood.safetensors", ("weight", "bias"))
        self.classes = tuple(context.card.config["moods"])
        if layer["weight"].shape != (len(self.classes), context.hidden_size):
            raise ModelLoadError("CORRUPT", f"mood.safetensors is no layer of {len(self.classes)} moods.")
        self._weight, self._bias = layer["weight"].to(context.device), layer["bias"].to(context.device)
        self.dims = len(self.classes)
        self.memory_bytes = self._weight.nbytes + self._bias.nbytes

    def lay_out(self, batch, upload):
        return find_spans(batch.cu_seqlens, batch.excluded, upload)

    def compute(self, states, layout, choice):
        logits = torch.nn.functional.linear(pool(states, layout, ("mean",)), self._weight, self._bias)
        return (logits.softmax(dim=1),)

    def finish(self, sequences, layout, arrays, choice):
        return [ItemOutput(classifications=self._classes(row)) for row in arrays[0]]

    def _classes(self, scores):
        return tuple(Classification(self.classes[place], float(scores[place])) for place in (-scores).argsort())


def load(context):
    return compose(context, read_recipe(context.card), [MoodHead])
