"""Reads one model config file into a `ModelConfig`: checks its fields and applies `extends`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sie_core.catalog.configs.schema import ModelFile, ModuleEntry, ProfileFile, WeightsFile
from sie_core.catalog.configs.yaml_text import YamlFault, load_yaml
from sie_core.catalog.regular_file import UnfitFile, read_regular
from sie_core.catalog.wording import line_of, quote_it, short
from sie_core.contracts import LoraConfig, ModelCard, ModelConfig, ModuleCard, OutputType, PinnedFile, Profile
from sie_core.contracts.model.config import DEFAULT_POOL

INPUTS = ("text", "image", "audio", "video", "document")
LARGEST_CONFIG = 2**20
"""The most bytes of a config; those written by hand have a few thousand."""
_NOWHERE = Path()


_STATED_ID: Final = re.compile(rb"""^\{?\s*(?:sie_id|model_id)\s*:\s*["']?([^\s"',}#]+)""", re.MULTILINE)


class ConfigError(Exception):
    """A model config cannot be used; the message names the file, the field, the value and what is allowed."""

    model: str | None = None
    """The id that the config states, if it could be read."""


def read_config(file: Path) -> ModelConfig:
    """Read one model config file.

    Raises:
        ConfigError: The file cannot be read, is no regular file, is too large or no YAML, or a field is wrong.
    """
    try:
        content = read_regular(file, LARGEST_CONFIG)
    except (OSError, UnfitFile) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    return config_of(content, source=str(file), folder=file.parent)


def config_of(content: bytes, *, source: str, folder: Path | None) -> ModelConfig:
    """Read the content of a model config file; `source` and `folder` are those of `parse_config`.

    Raises:
        ConfigError: It is no YAML, or a field is wrong.
    """
    try:
        try:
            data = load_yaml(content)
        except YamlFault as fault:
            raise ConfigError(f"{source}: {fault}") from None
        return parse_config(data, source=source, folder=folder, text=content.decode("utf-8"))
    except ConfigError as error:
        stated = _STATED_ID.search(content)
        error.model = None if stated is None else stated[1].decode("utf-8", "replace")
        raise


def parse_config(data: object, *, source: str, folder: Path | None, text: str = "") -> ModelConfig:
    """Check the content of a config and turn it into a `ModelConfig`.

    Args:
        data: Content of its YAML.
        source: Its path or URL, for messages.
        folder: Base of relative paths of weights; None if the config is in no folder of this machine.
        text: The YAML.

    Raises:
        ConfigError: A field is wrong; every wrong one is named, a line each.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: a model config is a map of fields, not {type(data).__name__}")
    try:
        parsed = ModelFile.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{source}: {line}" for line in describe_problems(error, text))) from None
    if parsed.remote_backed and not (parsed.hf_id or parsed.weights_path or parsed.package_backed):
        raise ConfigError(f"{source}: remote_backed=True: models served elsewhere are not supported; give it weights")
    paths = [parsed.weights_path, *(lora.weights_path for lora in parsed.loras.values())]
    if folder is None and (beside := next((path for path in paths if path and not _is_whole(path)), None)):
        raise ConfigError(
            f"{source}: weights_path: {beside!r}: nothing lies beside a config that is in no folder of this "
            "machine; give an absolute path, or hf_id with the weights in SIE_CLUSTER_CACHE or at the Hub"
        )
    return ModelConfig(
        id=parsed.id,
        hf_id=parsed.hf_id,
        hf_revision=parsed.hf_revision,
        weights_path=_weights_path(parsed.weights_path, folder),
        expected=_expected(parsed.weights),
        pickles={name: PinnedFile(file.size, file.sha256) for name, file in parsed.pickles.items()},
        tokenizers=parsed.hf_tokenizer_dependencies or {},
        unserved=parsed.unserved,
        license=parsed.license,
        weightless=parsed.package_backed,
        inputs=tuple(name for name in INPUTS if getattr(parsed.inputs, name)),
        tasks=parsed.tasks.model_dump(exclude_none=True),
        max_sequence_length=parsed.max_sequence_length,
        accept_token_ids=parsed.accept_token_ids,
        weight=parsed.weight,
        trust_remote_code=parsed.trust_remote_code,
        profiles=_profiles(parsed.profiles, source),
        loras={
            name: LoraConfig(name, lora.hf_id, lora.hf_revision, weights_path=_weights_path(lora.weights_path, folder))
            for name, lora in parsed.loras.items()
        },
        pool=parsed.pool or DEFAULT_POOL,
        source=source,
        text=text,
        content=data,
    )


def _is_whole(path: str) -> bool:
    return Path(path).expanduser().is_absolute()


def _weights_path(value: str | None, folder: Path | None) -> str | None:
    return None if value is None else str(((folder or Path()) / Path(value).expanduser()).absolute())


def _expected(weights: WeightsFile | None) -> ModelCard | None:
    if weights is None:
        return None
    stated = {"model_type": weights.model_type, "architectures": weights.architectures}
    config = {name: value for name, value in stated.items() if value}
    modules = tuple(_module(str(index), entry) for index, entry in enumerate(weights.modules))
    return ModelCard(_NOWHERE, config, modules, files=tuple(weights.files))


def _module(name: str, entry: ModuleEntry) -> ModuleCard:
    ((kind, config),) = entry.items() if isinstance(entry, dict) else ((entry, {}),)
    return ModuleCard(name, kind, _NOWHERE, config=config)


def _profiles(written: Mapping[str, ProfileFile], source: str) -> dict[str, Profile]:
    """Make the profiles: missing values are inherited from the parent, and so are whole maps of options."""
    profiles = {}
    for name, profile in written.items():
        parent = profile if profile.extends is None else written[profile.extends]
        own, inherited = profile.adapter_options, parent.adapter_options
        runtime = own.runtime or inherited.runtime
        profiles[name] = Profile(
            name=name,
            adapter_path=profile.adapter_path or parent.adapter_path,
            max_batch_cost=profile.max_batch_tokens or parent.max_batch_tokens,
            compute_precision=profile.compute_precision or parent.compute_precision,
            loadtime=own.loadtime or inherited.loadtime,
            runtime=runtime,
            output_types=_output_types(runtime, f"{source}: profiles.{name}.adapter_options.runtime"),
        )
    return profiles


def _output_types(runtime: Mapping[str, Any], where: str) -> tuple[str, ...] | None:
    value = runtime.get("output_types")
    if value is None:
        return None
    known = get_args(OutputType)
    if not isinstance(value, list) or not value or any(name not in known for name in value):
        raise ConfigError(f"{where}.output_types: {value!r} is not a list of {', '.join(known)}")
    return tuple(value)


def describe_problems(error: ValidationError, text: str = "") -> list[str]:
    """Write a line for each wrong field: path, value, what is allowed, and the position of an unknown one."""
    return [_line(problem, text) + describe_problem(problem) for problem in error.errors(include_url=False)]


def _line(problem: ErrorDetails, text: str) -> str:
    number = line_of(text, problem["ctx"]["key"]) if problem["type"] == "unknown_key" else None
    return "" if number is None else f"line {number}: "


def describe_problem(problem: ErrorDetails) -> str:
    """Write one wrong field: its path, its value and what is allowed."""
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{where}: the field is needed"
    if problem["type"] in {"unknown_key", "config"}:
        return f"{where}: {problem['msg']}" if where else problem["msg"]
    quoted = f".{quote_it(problem['input'])}" if problem["type"] == "string_type" and quote_it(problem["input"]) else ""
    return f"{where}: {short(problem['input'])}: {problem['msg']}{quoted}"
