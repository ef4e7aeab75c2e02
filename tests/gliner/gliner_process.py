"""gliner in its own environment: `python -m tests.gliner.gliner_process` obeys the orders of `tests.gliner.library`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gliner import GLiNER
from gliner.config import GLiNERConfig
from gliner.decoding import SpanDecoder, TokenDecoder

from tests.bench.operations.talking import Orders
from tests.gliner.checkpoints import write_checkpoint
from tests.gliner.training import train


@cache
def loaded(folder: str, dtype: str) -> Any:
    """Load a checkpoint, of which every tensor must be the model's, and every one of the model's there."""
    model = GLiNER.from_pretrained(folder, local_files_only=True, strict=True)
    model.model.to(getattr(torch, dtype))
    return model


def write(folder: str, kind: str, encoder: str, config: dict[str, Any]) -> str:
    return str(write_checkpoint(Path(folder), kind, encoder, **config))


def learn(folder: str) -> str:
    return str(train(Path(folder)))


def infer(folder: str, texts: list[str], labels: list[str], **options: Any) -> list[Any]:
    """Give entities and relations of each text alone."""
    found = []
    for text in texts:
        said = loaded(folder, "float32").inference([text], labels, **options)
        entities, relations = said if isinstance(said, tuple) else (said, [[]])
        found.append([entities[0], relations[0]])
    return found


def logits(folder: str, words: list[list[str]], labels: list[str], relations: list[str], save: str) -> list[str]:
    """Save the logits of each row of words alone, in float64, by their names.

    Gradients are computed along: without them PyTorch's attention gives gliner no weights.
    """
    model = loaded(folder, "float64")
    asked: dict[str, Any] = {"entity_types": [labels]} | ({"relation_types": [relations]} if relations else {})
    arrays = {}
    for number, row in enumerate(words):
        batch = model.collate_batch([{"tokenized_text": row, "ner": None}], **asked)
        output = model.model(**{name: value for name, value in batch.items() if torch.is_tensor(value)})
        for name in ("logits", "span_logits", "span_mask", "rel_logits", "rel_mask"):
            if getattr(output, name, None) is not None:
                arrays[f"{name}-{number}"] = getattr(output, name)[0].detach().numpy()
    np.savez(save, **arrays)
    return sorted(arrays)


def decode(decoder: str, words: int, classes: int, tensors: dict[str, Any], **options: Any) -> list[list[Any]]:
    """Have a decoder choose spans of one row from its logits; a span is its first and last word, class and score."""
    chosen = {"grid": SpanDecoder, "words": TokenDecoder}[decoder](GLiNERConfig())
    given = {name: torch.tensor([values]) for name, values in tensors.items()}
    names = {number + 1: str(number) for number in range(classes)}
    (spans,) = chosen.decode([["w"] * words], [names], **given, **options)
    return [[each.start, each.end, int(each.entity_type), each.score] for each in spans]


ORDERS = {"write": write, "train": learn, "infer": infer, "logits": logits, "decode": decode}


def main() -> None:
    torch.set_num_threads(1)
    orders = Orders()
    for order in orders:
        try:
            answer: Any = [ORDERS[order.pop("order")](**order), None]
        except Exception as error:  # told where it was asked
            answer = [None, f"{type(error).__name__}: {error}"]
        orders.answer(answer)


if __name__ == "__main__":
    main()
