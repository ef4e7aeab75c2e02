"""The configs that plugins ship: every fact in one has a source, and an installed family serves what it describes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from sie_text.prompts import Prompts

from sie_core.catalog import check_profile, choose_family, read_config
from sie_core.catalog.configs.snapshot import make_catalog
from sie_core.contracts import Device, InferenceError, ModelConfig, ModelLoadError, ResolvedModel, Task
from sie_core.defaults import BUILTINS
from sie_core.plugins import PluginSet, discover
from sie_core.settings import Settings

PLUGINS = Path(__file__).parents[2] / "plugins"
FILES = sorted(file for file in PLUGINS.glob("*/*/models/*.yaml") if "sie-fake" not in file.parts)

SOURCES = Path(__file__).parents[2] / "docs/extend/model-sources.md"

NO_FACTS = {"sie_id", "hf_id", "adapter_path"}
"""Fields that name the config and a family of ours."""

WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"

NOT_YET_CLAIMED = {
    # three outputs of one pass
    "BAAI/bge-m3",
    # multi-vector
    "answerdotai/answerai-colbert-small-v1",
    "colbert-ir/colbertv2.0",
    "lightonai/GTE-ModernColBERT-v1",
}
"""Models whose kind of weights no family serves yet. It only shrinks: a family that comes takes its models out."""

SIZES_LEFT_OUT = {
    "lightonai/LateOn-Code-edge",
    "lightonai/ModernColBERT-embed-base",
}
"""Models whose public sources contradict one another or say nothing of the size: the weights' files tell it."""

MAKES = {
    " → Pooling(": {"dense"},
    "sentence-transformers may load": {"dense"},
    "vectors looked up by token": {"dense"},
    "scores a pair": {"score", "extract"},
}
"""What the families here make of weights, by the words of their claims."""


def stated(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Name every fact of a config: the path of each value that is no map, and of each empty map."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from stated(below, (*path, name))
    else:
        yield path


def sources() -> Iterator[tuple[str, list[str], str]]:
    """Yield each row of the table of sources: the model, its facts, the source's name."""
    for row in re.finditer(r"(?m)^\| (\S+/\S+) \| (.+) \| \[(.+)\] \|$", SOURCES.read_text(encoding="utf-8")):
        yield row[1], row[2].split(", "), row[3]


def load(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return data


@pytest.fixture(scope="module")
def configs() -> list[ModelConfig]:
    return [read_config(file) for file in FILES]


@pytest.fixture(scope="module")
def plugins() -> PluginSet:
    return discover(Settings(), BUILTINS)


def test_the_catalog_holds_the_models_people_use_each_once(configs: list[ModelConfig]) -> None:
    ids = [config.id for config in configs]
    assert {"BAAI/bge-m3", "NovaSearch/stella_en_400M_v5", "sentence-transformers/all-MiniLM-L6-v2"} <= set(ids)
    assert len(ids) == len(set(ids)) >= 100


def test_a_file_is_named_as_its_model(configs: list[ModelConfig]) -> None:
    assert [file.stem for file in FILES] == [config.id.split("/")[-1].lower() for config in configs]


def test_every_model_names_its_weights_and_says_what_it_answers(configs: list[ModelConfig]) -> None:
    assert [config.id for config in configs if config.hf_id != config.id or not config.tasks] == []


def test_no_model_trusts_remote_code_or_names_a_revision_nobody_tested(configs: list[ModelConfig]) -> None:
    assert [config.id for config in configs if config.trust_remote_code or config.hf_revision] == []


@pytest.mark.parametrize(
    ("model", "instructed", "default"),
    [
        ("Qwen/Qwen3-Embedding-0.6B", "Instruct: Find code\nQuery:a fox", f"Instruct: {WEB_SEARCH}\nQuery:a fox"),
        ("Qwen/Qwen3-Embedding-4B", "Instruct: Find code\nQuery:a fox", f"Instruct: {WEB_SEARCH}\nQuery:a fox"),
        (
            "intfloat/e5-mistral-7b-instruct",
            "Instruct: Find code\nQuery: a fox",
            f"Instruct: {WEB_SEARCH}\nQuery: a fox",
        ),
        (
            "intfloat/multilingual-e5-large-instruct",
            "Instruct: Find code\nQuery: a fox",
            f"Instruct: {WEB_SEARCH}\nQuery: a fox",
        ),
        ("google/embeddinggemma-300m", "task: Find code | query: a fox", "task: search result | query: a fox"),
    ],
)
def test_an_instruction_is_written_as_the_model_was_trained(
    model: str, instructed: str, default: str, configs: list[ModelConfig]
) -> None:
    (config,) = (each for each in configs if each.id == model)
    words = Prompts({"query": "the weights' own: ", "document": "title: none | text: "})
    query = Task("encode", ("dense",), input_type="query", options=config.profiles["default"].runtime)
    assert words.choose(replace(query, instruction="Find code")).wrap("a fox") == instructed
    assert words.choose(query).wrap("a fox") == default
    assert words.choose(replace(query, input_type="document")).wrap("a fox") == "title: none | text: a fox"


def test_a_model_that_is_asked_for_and_cannot_be_served_names_some_that_are(configs: list[ModelConfig]) -> None:
    unserved = {config.id: config.unserved for config in configs if config.unserved is not None}
    assert set(unserved) == {"jinaai/jina-colbert-v2", "jinaai/jina-reranker-v2-base-multilingual"}
    catalog = make_catalog(1, configs)
    for name, reason in unserved.items():
        with pytest.raises(InferenceError, match="is not served here: its architecture") as raised:
            catalog.resolve(name)
        assert reason in raised.value.message
        assert len([served for served in catalog.entries if served in reason]) == 2


def test_every_fact_has_a_source_in_the_table_and_none_in_the_file() -> None:
    rows = list(sources())
    without = []
    for file in FILES:
        data = load(file)
        assert "sources" not in data, file.name
        known = [tuple(fact.split(".")) for model, facts, _ in rows if model == data["sie_id"] for fact in facts]
        facts = (path for path in stated(data) if not NO_FACTS & set(path))
        without += [(file.name, ".".join(path)) for path in facts if not any(path[: len(k)] == k for k in known)]
    assert without == []


def test_the_table_of_sources_names_only_models_that_ship_and_facts_that_they_state() -> None:
    shipped = {data["sie_id"]: data for data in map(load, FILES)}
    rows = list(sources())
    unstated = [
        (model, fact)
        for model, facts, _ in rows
        for fact in facts
        if not any(path[: fact.count(".") + 1] == tuple(fact.split(".")) for path in stated(shipped.get(model, {})))
    ]
    assert unstated == []
    twice = [
        each
        for each, times in Counter((model, fact) for model, facts, _ in rows for fact in facts).items()
        if times > 1
    ]
    assert twice == []


def test_a_source_of_the_table_is_a_public_page_that_stands_once() -> None:
    rows = list(sources())
    pages = re.findall(r"(?m)^\[(.+)\]: (\S+)$", SOURCES.read_text(encoding="utf-8"))
    assert {source for _, _, source in rows} == {name for name, _ in pages}
    assert all(re.fullmatch(r"https://\S+", page) for _, page in pages)
    assert len({page for _, page in pages}) == len({name.lower() for name, _ in pages}) == len(pages)
    assert len({(model, source) for model, _, source in rows}) == len(rows)


def test_sizes_of_vectors_are_stated_but_where_no_source_is_sure(configs: list[ModelConfig]) -> None:
    stated: dict[str, list[int | None]] = {}
    for config in configs:
        outputs = {**config.tasks.get("encode", {}), "sparse": None}
        stated[config.id] = [output.get("dim") for output in outputs.values() if output is not None]
    assert {name for name, dims in stated.items() if None in dims} == SIZES_LEFT_OUT
    assert all(
        dim in {64, 96, 128, 256, 384, 512, 768, 1024, 1152, 2560, 4096}
        for dims in stated.values()
        for dim in dims
        if dim
    )


def test_the_size_of_a_vector_is_that_of_the_layers_its_config_describes(configs: list[ModelConfig]) -> None:
    for config in configs:
        dense = config.tasks.get("encode", {}).get("dense", {})
        modules = config.expected.modules if config.expected else ()
        assert max(dense.get("matryoshka_dims", [dense.get("dim")]) or [0]) == dense.get("dim"), config.id
        layers = [module.config["out_features"] for module in modules if "out_features" in module.config]
        sizes = [output.get("dim") for output in config.tasks.get("encode", {}).values()]
        assert layers[-1:] in ([], sizes), config.id


def test_an_installed_family_serves_what_the_weights_will_say(configs: list[ModelConfig], plugins: PluginSet) -> None:
    """Checked where the config knows it. A family that makes something else of the weights does not count."""
    unclaimed = {config.id for config in configs if config.expected and not serves(config, plugins)}
    assert unclaimed - NOT_YET_CLAIMED == set()


def test_only_models_that_are_described_and_more_than_text_encoders_wait_for_a_family(
    configs: list[ModelConfig],
) -> None:
    described = {config.id for config in configs if config.expected and not is_dense_text(config)}
    assert NOT_YET_CLAIMED - described == set()


def serves(config: ModelConfig, plugins: PluginSet) -> bool:
    model = ResolvedModel(config.id, config, config.profiles["default"])
    try:
        choice = choose_family(plugins, model, config.expected, Device("cpu"))
    except ModelLoadError:
        return False
    makes = [made for words, made in MAKES.items() if words in choice.reason]
    wanted = {"dense"} if is_dense_text(config) else set(config.tasks)
    return all(wanted <= made for made in makes)


def is_dense_text(config: ModelConfig) -> bool:
    return config.inputs == ("text",) and list(config.tasks) == ["encode"] and list(config.tasks["encode"]) == ["dense"]


def test_the_family_that_serves_a_model_knows_the_options_of_its_config(
    configs: list[ModelConfig], plugins: PluginSet
) -> None:
    for config in configs:
        if config.expected is None or config.id in NOT_YET_CLAIMED:
            continue
        model = ResolvedModel(config.id, config, config.profiles["default"])
        family = choose_family(plugins, model, config.expected, Device("cpu")).family
        for profile in config.profiles.values():
            assert check_profile(family, profile) == (), config.id
