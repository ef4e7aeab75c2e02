"""Sums rows of a table, in NumPy."""

import numpy as np
from sie_text.adapter import HostAdapter
from sie_text.encode import TextPreparation
from sie_text.loading import warm_up
from sie_text.tokenizer import load_tokenizer

from sie_core.contracts import ItemOutput, ModelFacts, ModelLoadError


class WordTable(HostAdapter):
    def __init__(self, preparation, table):
        self.tokenizer, self._preparation, self._table = preparation.tokenizer, preparation, table

    def prepare(self, items, task):
        normalize = bool(task.options.get("normalize"))
        for index, each in enumerate(self._preparation.sequences(items, task)):
            yield each.unit(index, normalize)

    def finish(self, units, raw):
        return [self._output(unit.payload.ids, unit.key) for unit in units]

    def _output(self, ids, normalize):
        vector = self._table[ids].sum(axis=0)
        length = np.linalg.norm(vector)
        if normalize and length > 0:
            return ItemOutput(dense=vector / length, normalized=True)
        return ItemOutput(dense=vector)


def load(context):
    tokenizer, limit = load_tokenizer(context.card, bare=True), context.model.config.max_sequence_length
    table = np.load(context.weights / "words.npy", mmap_mode="r", allow_pickle=False)
    if table.dtype != np.float32 or len(table) < tokenizer.vocabulary:
        raise ModelLoadError("CORRUPT", f"words.npy is no float32 table of {tokenizer.vocabulary} words.")
    encoder = WordTable(TextPreparation.bare(context, tokenizer, limit), table)
    encoder.facts = ModelFacts(("dense",), dims={"dense": table.shape[1]}, max_sequence_length=limit)
    warm_up(encoder, context)
    return encoder
