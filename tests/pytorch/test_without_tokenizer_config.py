"""A folder whose tokenizer_config.json was not copied along serves all the same, or says that the file is missing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers.sentence_transformer import modules as st

from sie_core.contracts import ModelLoadError
from tests.pytorch.encoders import save_encoder, serve
from tests.pytorch.models import HIDDEN

Checkpoint = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "family", "failure"),
    [
        ("xlm-roberta", "pytorch", "CORRUPT"),
        ("xlm-roberta", "sentence-transformers", "CONFIG"),
        ("mpnet", "pytorch", "CORRUPT"),
        ("mpnet", "sentence-transformers", "CORRUPT"),
        ("llama", "sentence-transformers", "CORRUPT"),
    ],
)
def test_a_missing_tokenizer_config_is_named(
    checkpoint: Checkpoint, tmp_path: Path, name: str, family: str, failure: str
) -> None:
    save_encoder(checkpoint(name), tmp_path, st.Pooling(HIDDEN, "mean"))
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ModelLoadError, match=r"tokenizer_config\.json is missing") as raised:
        serve(tmp_path, family)
    assert raised.value.failure == failure


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
def test_a_tokenizer_that_needs_no_config_serves_without_it(
    checkpoint: Checkpoint, tmp_path: Path, family: str
) -> None:
    save_encoder(checkpoint("bert"), tmp_path, st.Pooling(HIDDEN, "mean"))
    (tmp_path / "tokenizer_config.json").unlink()
    assert serve(tmp_path, family).facts.dims == {"dense": HIDDEN}
