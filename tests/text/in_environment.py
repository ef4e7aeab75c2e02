"""Run with the Python of an environment: what sie-text makes of the models below a folder, as JSON."""

import json
import sys
from pathlib import Path

import sie_text
from sie_text.encode import TextPreparation
from sie_text.lengths import sequence_lengths
from sie_text.loading import disable_progress_bars
from sie_text.prompts import Prompts
from sie_text.recipe import TransformerSettings
from sie_text.static.encoder import load
from sie_text.tokenizer import load_tokenizer

from sie_core.contracts import (
    Device,
    Item,
    LoadContext,
    ModelCard,
    ModelConfig,
    ModelLoadError,
    Profile,
    ResolvedModel,
    Task,
)

TEXTS = ["", "A Query is SHORT", "the índex, keeps; what it has READ " * 8, "[SEP] a </s> b \N{OWL} 中文"]
PROMPTS = Prompts({"query": "query: ", "document": ""})
EARLY = sorted({"torch", "transformers"} & set(sys.modules))


def card(folder: Path) -> ModelCard:
    config = folder / "config.json"
    content = json.loads(config.read_text()) if config.exists() else {}
    return ModelCard(folder, content, files=tuple(file.name for file in folder.iterdir()))


def sequences(folder: Path) -> object:
    try:
        tokenizer = load_tokenizer(card(folder))
    except ModelLoadError as error:
        return f"{error.failure}: {error}"
    lengths, _ = sequence_lengths(ModelConfig("m"), card(folder), TransformerSettings(), tokenizer, 24)
    preparation = TextPreparation("m", tokenizer, PROMPTS, lengths, pools_prompt=False, takes_ids=False)
    tasks = [Task("encode", ("dense",), input_type="query", truncate=end) for end in ("start", "end")]
    made = [each for task in tasks for each in preparation.sequences([Item(text=text) for text in TEXTS], task)]
    return [[each.ids.tolist(), each.excluded, each.truncated is not None] for each in made]


def static(folder: Path) -> object:
    profile = Profile("default")
    model = ResolvedModel("m", ModelConfig("m", profiles={"default": profile}), profile)
    adapter = load(LoadContext(model, Device("cpu"), "float32", weights=folder, card=card(folder)))
    units = list(adapter.prepare([Item(text=text) for text in TEXTS], Task("encode", ("dense",))))
    return [output.dense.tolist() for output in adapter.finish(units, adapter.run(units))]


root = Path(sys.argv[1])
answer = {
    "early": EARLY,
    "version": sie_text.__version__,
    "static": static(root / "static"),
    "heavy": sorted({"torch", "transformers"} & set(sys.modules)),
    "sequences": {folder.name: sequences(folder) for folder in sorted((root / "tokenizers").iterdir())},
    "torch": "torch" in sys.modules,
}
disable_progress_bars()
print(json.dumps(answer))
