"""`tokenizer.json` counts, whatever class of transformers the files name; and so do two flags of the file beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer import modules as st
from sie_sentence_transformers.references.vectors import Vectors
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, AutoTokenizer

from sie_core.contracts import Item, ModelInfo, Task
from tests.pytorch.encoders import ask, context, deviation, serve, write_encoder
from tests.pytorch.models import HIDDEN

BOUND = 1e-5
TEXTS = ["The Quick brown fox, 12345 times", "a query is short: ﬁ café  two", "x"]

Checkpoint = Callable[[str], Path]


@dataclass(frozen=True)
class Folder:
    """A folder whose class would build another tokenizer."""

    base: str
    named: str | None
    edit: Callable[[Tokenizer], None]


def digits_together(core: Tokenizer) -> None:
    """Keep a number whole, which the class takes apart."""
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    vocabulary = core.get_vocab(with_added_tokens=False)
    words = dict(sorted(vocabulary.items(), key=lambda each: each[1])[:-1])
    words["12"] = max(words.values()) + 1
    core.model = models.BPE(words, [("1", "2")])


def ends_with(core: Tokenizer) -> None:
    """Put a token at the end that the class does not."""
    token = ("<mask>", core.token_to_id("<mask>"))
    core.post_processor = processors.TemplateProcessing(
        single="<bos> $A <mask>",
        pair="<bos> $A $B <mask>",
        special_tokens=[token, ("<bos>", core.token_to_id("<bos>"))],
    )


def lower_cased(core: Tokenizer) -> None:
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])


FOLDERS = {
    "digits are split otherwise": Folder("llama", "Qwen2Tokenizer", digits_together),
    "the end token is missing": Folder("llama", "RobertaTokenizer", ends_with),
    "no class is named": Folder("bert", None, lower_cased),
    "another family's class": Folder("bert", "MPNetTokenizer", lower_cased),
}


def spoil(folder: Path, named: str | None, edit: Callable[[Tokenizer], None] | None = None, **said: Any) -> Tokenizer:
    """Change the tokenizer of a folder; return what its `tokenizer.json` says."""
    file, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    core = Tokenizer.from_file(str(file))
    if edit is not None:
        edit(core)
        core.save(str(file))
    written = json.loads(config.read_text())
    del written["tokenizer_class"]
    config.write_text(json.dumps({**written, **({"tokenizer_class": named} if named else {}), **said}))
    return Tokenizer.from_file(str(file))


def states(folder: Path, ids: list[int]) -> NDArray[np.float32]:
    """Compute the last hidden states of some ids by transformers' own class: `[tokens, hidden]`."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        found: NDArray[np.float32] = model(torch.tensor([ids])).last_hidden_state[0].numpy()
    return found


def reference(folder: Path) -> Vectors:
    """Load what `sie verify` compares with, in the same folder."""
    served = ModelInfo("test/model", ("text",), ("dense",), dims={}, state="loaded")
    return Vectors.load(context(folder), served)


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
@pytest.mark.parametrize("name", FOLDERS)
def test_the_vectors_are_those_of_the_file_s_own_ids(
    name: str, family: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    case = FOLDERS[name]
    write_encoder(checkpoint(case.base), tmp_path, st.Pooling(HIDDEN, "mean"))
    core = spoil(tmp_path, case.named, case.edit)
    expected = np.stack([states(tmp_path, core.encode(text).ids).mean(axis=0) for text in TEXTS])
    library = AutoTokenizer.from_pretrained(tmp_path)
    assert any(library(text).input_ids != core.encode(text).ids for text in TEXTS)
    encoder = serve(tmp_path, family)
    assert deviation(ask(encoder, TEXTS).vectors, expected) <= BOUND
    assert type(library).__name__ in encoder.facts.notes["tokenizer"]
    told = reference(tmp_path).answer([Item(text=text) for text in TEXTS], Task("encode", ("dense",)))
    assert deviation(np.stack([output.dense for output in told if output.dense is not None]), expected) <= BOUND


@pytest.mark.parametrize("named", ["LlamaTokenizer", "TokenizersBackend", None])
def test_a_text_ends_in_its_end_token_where_the_config_says_so(
    named: str | None, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """The layout of e5-mistral-7b-instruct: `<s>` from the file, `</s>` by the flag, and pooled by the last token."""

    def start_alone(core: Tokenizer) -> None:
        token = ("<bos>", core.token_to_id("<bos>"))
        core.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[token]
        )

    write_encoder(checkpoint("mistral"), tmp_path, st.Pooling(HIDDEN, "lasttoken"), length=12)
    core = spoil(tmp_path, named, start_alone, add_bos_token=True, add_eos_token=True)
    end = core.token_to_id("<eos>")
    ids = [[*core.encode(text).ids, end] for text in TEXTS]
    encoder = serve(tmp_path)
    fitting = [place for place, each in enumerate(ids) if len(each) <= 12]
    assert fitting
    assert len(fitting) < len(TEXTS)
    answer = ask(encoder, TEXTS)
    for place, each in enumerate(ids):
        kept = each if place in fitting else [*each[:11], end]
        assert deviation(answer.vectors[place], states(tmp_path, kept)[-1]) <= BOUND
        assert answer.units[place].tokens == len(kept)
    assert encoder.tokenize(["a"], special=True)[0][-1].id == end
    told = reference(tmp_path).answer([Item(text=TEXTS[fitting[0]])], Task("encode", ("dense",)))
    assert told[0].dense is not None
    assert deviation(told[0].dense, states(tmp_path, ids[fitting[0]])[-1]) <= BOUND


@pytest.mark.parametrize("pad", ["<pad>", "<eos>"])
@pytest.mark.parametrize("padding", [{"length": 16}, {"pad_to_multiple_of": 8}], ids=["fixed", "multiple"])
def test_padding_that_the_file_stores_hides_no_flag(
    padding: dict[str, int], pad: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Fine-tuned Mistrals pad by their end token: it then stands at the end of a text, and is not its end."""

    def pads(core: Tokenizer) -> None:
        core.post_processor = None
        core.enable_padding(pad_id=core.token_to_id(pad), pad_token=pad, **padding)

    write_encoder(checkpoint("mistral"), tmp_path, st.Pooling(HIDDEN, "lasttoken"))
    core = spoil(tmp_path, "LlamaTokenizer", pads, add_bos_token=True, add_eos_token=True)
    core.no_padding()
    (unit,) = ask(serve(tmp_path), ["x"]).units
    assert unit.payload.ids.tolist() == [core.token_to_id("<bos>"), *core.encode("x").ids, core.token_to_id("<eos>")]


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
def test_a_tokenizer_in_a_folder_below_counts_as_well(family: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The layout of old sentence-transformers models: the transformer lies in `0_Transformer`."""
    case = FOLDERS["another family's class"]
    write_encoder(checkpoint(case.base), tmp_path, st.Pooling(HIDDEN, "mean"))
    below = tmp_path / "0_Transformer"
    below.mkdir()
    listed = json.loads((tmp_path / "modules.json").read_text())
    for file in [each for each in tmp_path.iterdir() if each.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(below / file.name)
    listed[0]["path"] = below.name
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    core = spoil(below, case.named, case.edit)
    expected = np.stack([states(below, core.encode(text).ids).mean(axis=0) for text in TEXTS])
    encoder = serve(tmp_path, family)
    assert deviation(ask(encoder, TEXTS).vectors, expected) <= BOUND


@pytest.mark.parametrize("family", ["pytorch", "sentence-transformers"])
@pytest.mark.parametrize("named", ["LlamaTokenizer", None])
@pytest.mark.parametrize("ends", [True, False, None])
def test_a_flag_adds_its_token_takes_it_away_or_leaves_the_file_as_it_is(
    ends: bool | None, named: str | None, family: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    write_encoder(checkpoint("mistral"), tmp_path, st.Pooling(HIDDEN, "lasttoken"))
    core = spoil(tmp_path, named, add_bos_token=True, **({} if ends is None else {"add_eos_token": ends}))
    start, end = core.token_to_id("<bos>"), core.token_to_id("<eos>")
    assert core.encode("x").ids[-1] == end
    tail = [] if ends is False else [end]
    ids = [[start, *core.encode(text, add_special_tokens=False).ids, *tail] for text in TEXTS]
    expected = np.stack([states(tmp_path, each)[-1] for each in ids])
    assert deviation(ask(serve(tmp_path, family), TEXTS).vectors, expected) <= BOUND
