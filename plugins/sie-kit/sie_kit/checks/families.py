"""The checks of registrations that need no model: families, packages of weights, commands and the distribution itself.

A check that fails raises AssertionError with the reason.
"""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory

import click
from packaging.utils import canonicalize_name

from sie_core.commands import Command
from sie_core.contracts import Claim, ModelCard, ModelFamily, ModuleCard, NoClaim, WeightPackage
from sie_kit.outcomes import Skipped

HEAVY = frozenset((
    "accelerate", "bitsandbytes", "cupy", "ctranslate2", "cv2", "dask", "datasets", "deepspeed", "fastai", "fasttext",
    "flair", "flash_attn", "flax", "gensim", "gliner", "jax", "jaxlib", "keras", "lightgbm", "llama_cpp",
    "matplotlib", "mlx", "model2vec", "mxnet", "nltk", "numba", "onnx", "onnxruntime", "openvino", "optimum",
    "paddle", "pandas", "peft", "PIL", "polars", "pyarrow", "pytorch_lightning", "ray", "safetensors", "scipy",
    "sentence_transformers", "sentencepiece", "sglang", "skimage", "sklearn", "spacy", "tensorflow", "tensorrt",
    "tf_keras", "timm", "tinygrad", "tokenizers", "torch", "torchaudio", "torchvision", "transformers", "triton",
    "tvm", "vllm", "xgboost",
))  # fmt: skip
"""Libraries that discovery must not import: they take seconds, and `sie plugins` must take none."""
SLOW_S = 1.0
"""Seconds that a claim may take: it reads a card, and every model of a listing is asked."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the checks of a whole distribution look at."""

    distribution: str
    plugins: Sequence[str]
    """The modules of its plugins."""
    commands: Sequence[str] = ()
    """The modules of its lists of commands."""


def discovery_stays_light(sources: Sources) -> None:
    """Importing the plugins and lists of commands, in a process of its own, loads no model library."""
    code = (
        "import sys; from pkgutil import resolve_name; from sie_core.plugins.asking import ask; "
        f"[ask(lambda: resolve_name(module), module, module) for module in {sources.plugins!r}]; "
        f"[resolve_name(module) for module in {sources.commands!r}]; "
        f"print(*sorted(set(sys.modules) & {set(HEAVY)!r}), file=sys.__stdout__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"discovery fails in a process of its own: {done.stderr}"
    loaded = done.stdout.strip()
    remedy = "name functions and classes by 'module:name' instead"
    assert not loaded, f"the plugin imports {loaded} before a model is loaded; {remedy}"


def a_wheel_carries_what_it_states(sources: Sources) -> None:
    """A wheel that states a licence carries its text, one with the classifier `Typing :: Typed` carries `py.typed`."""
    found = distribution(sources.distribution)
    files = [Path(str(file)).name for file in found.files or ()]
    if not any(file.endswith(".py") for file in files):  # an editable install lists a path only
        raise Skipped("it is no wheel")
    stated = [found.metadata[name] for name in ("License-Expression", "License") if name in found.metadata]
    texts = [file for file in files if "licen" in file.lower() or "copying" in file.lower()]
    assert texts or not stated, f"it states the licence {stated[0]} without its text: add LICENSE beside pyproject.toml"
    if "Typing :: Typed" in (found.metadata.get_all("Classifier") or ()):
        assert "py.typed" in files, "it says Typing :: Typed and has no py.typed: mypy ignores its types"


DISTRIBUTION_CHECKS: Sequence[Callable[[Sources], None]] = (
    discovery_stays_light,
    a_wheel_carries_what_it_states,
)


def its_load_can_be_imported(family: ModelFamily) -> None:
    """`load`, and `preview` if there is one, names a function of a module that takes what the engine gives it."""
    for name, given in ((family.load, 1), (family.preview, 2)):
        if name is None:
            continue
        attribute = name.partition(":")[2]
        assert "." not in attribute, f"{name} is no function of a module: the engine imports 'module:function'"
        try:
            function = resolve_name(name)
        except Exception as error:
            raise AssertionError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
        assert callable(function), f"{name} is {function!r}, which cannot be called"
        try:
            inspect.signature(function).bind(*range(given))
        except TypeError as error:
            raise AssertionError(f"{name} is called with {given} argument(s), and {error}") from error


def claims_are_of_its_own_weights(family: ModelFamily) -> None:
    """`claims` answers any card at once with Claim, NoClaim or None, and claims no weights of an unknown kind.

    `companions` and `claims` do without files that are gone, and without any field of the config.
    """
    for what, card in _cards():
        started = time.monotonic()
        try:
            claim = family.claims(card)
            companions = list(family.companions(card)) if family.companions and isinstance(claim, Claim) else []
        except BaseException as error:
            raise AssertionError(f"claims fails on {what} with {type(error).__name__}: {error}; return None") from error
        seconds = time.monotonic() - started
        assert claim is None or isinstance(claim, Claim | NoClaim), f"claims gives {claim!r} for {what}"
        assert seconds < SLOW_S, f"claims takes {seconds:.1f} s for {what}: it may read the card alone"
        assert all(isinstance(each, str) for each in companions), f"companions gives {companions!r} for {what}"
        # A family that hands whole folders to a library may try any module.
        assert not isinstance(claim, Claim) or card.modules, f"claims takes {what}: {claim.reason!r}"
    if family.companions is not None:
        for what, card in _cards():
            try:
                list(family.companions(card))
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                raise AssertionError(f"companions fails on {what} ({told}): a card may lack anything") from error


def claims_import_no_model_library(family: ModelFamily) -> None:
    """Asking a family for its claims loads no model library: listings ask for every model."""
    before = set(sys.modules)
    for _, card in _cards():
        family.claims(card)
    loaded = sorted((set(sys.modules) - before) & HEAVY)
    assert not loaded, f"claims imports {', '.join(loaded)}: it may read the card alone"


def _cards() -> Iterator[tuple[str, ModelCard]]:
    """Make cards that are nobody's, some of them of files that are no config of a model."""
    with TemporaryDirectory() as made:
        gone = Path(made) / "gone"
        empty = ModelCard(gone, {})
        yield "a folder without a config", empty
        for config in (
            {"architectures": ["SieKitModel"], "model_type": "sie-kit"},
            {"architectures": None, "model_type": None},
            {"architectures": "SieKitModel", "model_type": 7, "hidden_size": "large"},
            {"architectures": [None, 7, []], "model_type": ["sie-kit"], "text_config": 3},
            {"model_type": "sie-kit", "num_labels": -1, "id2label": [], "quantization_config": "q"},
        ):
            yield f"the config {config}", replace(empty, config=config)
            yield f"the config {config} with weights", replace(empty, config=config, files=("model.safetensors",))
        module = ModuleCard("0", "sie_kit.Nothing", gone, config={"nothing": None})
        yield "an unknown module of sentence-transformers", replace(empty, modules=(module,))
        yield (
            "odd files of sentence-transformers",
            replace(empty, sentence_transformers={"prompts": 3, "similarity_fn_name": []}),
        )


FAMILY_CHECKS: Sequence[Callable[[ModelFamily], None]] = (
    its_load_can_be_imported,
    claims_are_of_its_own_weights,
    claims_import_no_model_library,
)


def its_weights_are_in_the_distribution(package: WeightPackage) -> None:
    """The files are in the named module, and each weight file has a sum that is its own."""
    assert package.repo_id.count("/") == 1, f"repo_id is {package.repo_id!r}, not like 'org/name'"
    try:
        distribution(canonicalize_name(package.distribution))
    except PackageNotFoundError:
        raise AssertionError(f"the distribution {package.distribution!r} is not installed") from None
    try:
        module = import_module(package.module)
    except Exception as error:
        raise AssertionError(f"{package.module} cannot be imported: {type(error).__name__}: {error}") from error
    folder = Path(str(module.__file__)).parent / package.folder
    assert folder.is_dir(), f"{folder} is no folder; does the wheel include it?"
    for name, stated in package.sha256:
        assert (folder / name).is_file(), f"{folder} has no file {name!r}; does the wheel include it?"
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert found == stated, f"the sum of {name} is {found}, and {stated} is stated"
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*.safetensors")]
    assert names, f"{folder} holds no *.safetensors"
    unstated = sorted(set(names) - {name for name, _ in package.sha256})
    assert not unstated, f"sha256 states no sum of {unstated}"


PACKAGE_CHECKS: Sequence[Callable[[WeightPackage], None]] = (its_weights_are_in_the_distribution,)


def its_commands_can_be_called(command: Command) -> None:
    """A command's target is a click.Command, and its help is a sentence."""
    assert command.help[:1].isupper(), f"its help {command.help!r} is no sentence"
    assert command.help.endswith("."), f"its help {command.help!r} is no sentence"
    try:
        found = resolve_name(command.target)
    except Exception as error:
        raise AssertionError(f"{command.target} cannot be imported: {type(error).__name__}: {error}") from error
    assert isinstance(found, click.Command), f"{command.target} is {found!r}, no click.Command"


COMMAND_CHECKS: Sequence[Callable[[Command], None]] = (its_commands_can_be_called,)
