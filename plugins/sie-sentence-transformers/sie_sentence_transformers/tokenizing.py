"""Makes the library tokenise as `tokenizer.json` says, if transformers' classes would not."""

from __future__ import annotations

from typing import Any

from sie_text.tokenizer import obey_file


def obey_files(library: Any) -> str | None:
    """Have every tokenizer of a model of the library follow the file it was built from.

    Args:
        library: A model of sentence-transformers, of any kind.

    Returns:
        A note for operators; None if every tokenizer already follows its file.

    Raises:
        ModelLoadError: `CORRUPT`: the files cannot be read.
        NotUnderstoodError: A tokenizer cannot be made to follow it.
    """
    found = {id(each): each for module in library.modules() if (each := getattr(module, "tokenizer", None)) is not None}
    notes = [note for each in found.values() if hasattr(each, "backend_tokenizer") and (note := obey_file(each))]
    return "; ".join(dict.fromkeys(notes)) or None
