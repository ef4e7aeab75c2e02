"""Sparse encoders of two routes: documents go through a transformer, a query's weights are looked up by token.

They are read as `Router` and `SparseStaticEmbedding` of sentence-transformers 6 read them; such retrievers go by the
name "inference-free" (arXiv 2411.04403).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from sie_core.contracts import ModelCard, ModelLoadError, ModuleCard
from sie_text.recipe.encoders.reading import is_splade
from sie_text.recipe.files import card_below
from sie_text.recipe.settings import NotUnderstoodError

Role = Literal["query", "document"]
ROUTERS = ("Router", "Asym")
LOOKUP = "SparseStaticEmbedding"


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """The location of the token weights, and the tokenizer for them."""

    folder: Path
    idf: Path | None = None
    """A JSON map of tokens to weights; None if `model.safetensors` has them, by id."""


@dataclass(frozen=True, slots=True)
class Routes:
    """A model that looks the weights of one side up."""

    lookup: LookupSettings
    looked_up: frozenset[Role]
    """The roles whose texts are looked up."""
    encoder: ModelCard | None
    """The card of the encoder for other texts; None if all are looked up."""
    _: KW_ONLY
    default: Role
    """The role of texts without one."""


def is_sparse_router(card: ModelCard) -> bool:
    """Whether the files are those of a model that looks up the weights of some texts."""
    if not card.modules:
        return False
    first = card.modules[0]
    kinds = [str(name) for name in _map(first.config, "types").values()] if first.kind in ROUTERS else [first.type]
    return any(kind.rsplit(".", 1)[-1] == LOOKUP for kind in kinds)


def is_router(card: ModelCard) -> bool:
    """Whether `modules.json` holds only a router, of any kind."""
    return len(card.modules) == 1 and card.modules[0].kind in ROUTERS


def read_routes(card: ModelCard) -> Routes:
    """Read the routes of a model.

    Raises:
        NotUnderstoodError: The routes are not a look-up and a SPLADE encoder.
        ModelLoadError: `CORRUPT`: a file of a module is no JSON.
    """
    if len(card.modules) != 1:
        raise NotUnderstoodError(f"modules.json chains {' → '.join(module.kind for module in card.modules)}")
    (first,) = card.modules
    if first.kind == LOOKUP:
        return Routes(_lookup(card, first), frozenset(("query", "document")), None, default="document")
    chains = _chains(card, first)
    looked_up = {role for role, chain in chains.items() if [module.kind for module in chain] == [LOOKUP]}
    encoded = [chain for role, chain in chains.items() if role not in looked_up]
    if not all(is_splade(chain) for chain in encoded):
        raise NotUnderstoodError(f"its Router has {' and '.join(_words(chain) for chain in encoded)} beside a look-up")
    (lookup,) = {chains[role][0].path for role in looked_up}
    settings = next(chains[role][0] for role in looked_up if chains[role][0].path == lookup)
    return Routes(
        _lookup(card, settings),
        frozenset(looked_up),
        _card_of(card, encoded[0]) if encoded else None,
        default=_default(first, list(chains)),
    )


def _chains(card: ModelCard, router: ModuleCard) -> dict[Role, list[ModuleCard]]:
    types, structure = _map(router.config, "types"), _map(router.config, "structure")
    if set(structure) != {"query", "document"}:
        raise NotUnderstoodError(f"its Router has the routes {', '.join(structure)}, not query and document")
    if _map(_map(router.config, "parameters"), "route_mappings"):
        raise NotUnderstoodError("its Router maps routes")
    modules = {name: _module(card, router.path, name, kind) for name, kind in types.items()}
    try:
        chains: dict[Role, list[ModuleCard]] = {
            role: [modules[name] for name in structure[role]] for role in ("query", "document")
        }
    except KeyError as error:
        raise NotUnderstoodError(f"its Router routes through {error}, which it does not define") from None
    return chains


def _module(card: ModelCard, folder: Path, name: str, kind: Any) -> ModuleCard:
    if not str(kind).startswith("sentence_transformers."):
        raise NotUnderstoodError(f"its Router names {kind}, a class of its own")
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise NotUnderstoodError(f"its Router keeps a module at {name!r}, outside the model's folder")
    path = folder / name
    files = sorted(path.glob("sentence_*_config.json")) if str(kind).endswith("Transformer") else [path / "config.json"]
    return ModuleCard(name, str(kind), path, config=_read(files[0]) if files else {})


def _lookup(card: ModelCard, module: ModuleCard) -> LookupSettings:
    named = module.config.get("path")
    if not named:
        return LookupSettings(module.path)
    # The path is from the machine that wrote it, or from a repository; the file is next to the module, or in the root.
    name = PurePosixPath(str(named)).name
    for folder in (module.path, card.path):
        for file in (folder / name, folder / "idf.json"):
            if file.suffix == ".json" and file.is_file():
                return LookupSettings(module.path, file)
    raise NotUnderstoodError(f"the weights of its tokens are said to lie in {name}, which is not there")


def _card_of(card: ModelCard, chain: Sequence[ModuleCard]) -> ModelCard:
    """Make the card of one route, as if it were a separate model."""
    folder = chain[0].path
    return card_below(card, folder, config=_read(folder / "config.json"), modules=tuple(chain))


def _default(router: ModuleCard, roles: Sequence[Role]) -> Role:
    default = _map(router.config, "parameters").get("default_route")
    return default if default in ("query", "document") else roles[0]


def _words(chain: Sequence[ModuleCard]) -> str:
    return " → ".join(module.kind for module in chain)


def _map(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def _read(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise ModelLoadError("CORRUPT", f"{file.parent.name}/{file.name} is not valid JSON.") from None
    if not isinstance(content, dict):
        raise ModelLoadError("CORRUPT", f"{file.parent.name}/{file.name} holds no JSON object.")
    return content
