"""Checkpoints whose config transformers does not read as it is, made readable for the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sie_pytorch.forward import register_class
from sie_text.architectures import translate

from sie_core.contracts import ModelCard


@contextmanager
def readable(card: ModelCard) -> Iterator[Path]:
    """Give the folder of a checkpoint, or one with its config translated by its record and links to its other files.

    Raises:
        ModelLoadError: Its config cannot be translated.
    """
    register_class(card.model_type, card.records)
    dialect = translate(card.config, card.records)
    if dialect is None:
        yield card.path
        return
    model_type, fields = dialect
    with TemporaryDirectory(prefix="sie-reference-") as made:
        folder = Path(made)
        for each in card.path.iterdir():
            if each.name != "config.json":
                (folder / each.name).symlink_to(each.absolute())
        config = {"architectures": list(card.architectures), **fields, "model_type": model_type}
        (folder / "config.json").write_text(json.dumps(config))
        yield folder
