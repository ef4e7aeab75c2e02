"""The plugin `pytorch`: its families, runners, devices and models.

It names classes and imports no model library.
"""

from __future__ import annotations

from pathlib import Path

from sie_text.claims import claim_classifier, claim_encoder, claim_pairs, claim_token_classifier
from sie_text.options import CLASSIFIER_OPTIONS, ENCODER_OPTIONS, ENTITY_OPTIONS, PAIR_OPTIONS
from sie_text.recipe import of_found_weights

from sie_core.contracts import DeviceProbe, ModelFamily, PluginSetting, RunnerSpec
from sie_core.hookspecs import hookimpl
from sie_pytorch.devices.probes import CudaProbe, MpsProbe
from sie_pytorch.families.vision.claims import claim_vision
from sie_pytorch.families.vision.options import OPTIONS as VISION_OPTIONS
from sie_pytorch.forward.specs import RUNNERS
from sie_pytorch.settings import CPU_BFLOAT16, CUDA_TRIAL

INTERFACES = ("sie.family/1", "sie.runner/3", "sie.models/1", "sie.probe/1", "sie.setting/1")

DEVICES = frozenset({"cpu", "cuda", "mps"})


@hookimpl
def sie_model_families() -> list[ModelFamily]:
    """Register the packed text encoders, the models of pairs, the classifiers of texts and tokens, and CLIP's kind."""
    return [
        ModelFamily(
            "pytorch",
            "sie_pytorch.families.encode.loading:load",
            of_found_weights(claim_encoder),
            devices=DEVICES,
            options=ENCODER_OPTIONS,
            preview="sie_text.claims:preview_encoder",
        ),
        ModelFamily(
            "pytorch-pairs",
            "sie_pytorch.families.pairs.loading:load",
            of_found_weights(claim_pairs),
            devices=DEVICES,
            options=PAIR_OPTIONS,
            preview="sie_text.claims:preview_pairs",
        ),
        ModelFamily(
            "pytorch-classify",
            "sie_pytorch.families.classify.loading:load",
            of_found_weights(claim_classifier),
            devices=DEVICES,
            options=CLASSIFIER_OPTIONS,
            preview="sie_text.claims:preview_classifier",
        ),
        ModelFamily(
            "pytorch-tokens",
            "sie_pytorch.families.tokens.loading:load",
            of_found_weights(claim_token_classifier),
            devices=DEVICES,
            options=ENTITY_OPTIONS,
            preview="sie_text.claims:preview_token_classifier",
        ),
        ModelFamily(
            "pytorch-vision",
            "sie_pytorch.families.vision.loading:load",
            of_found_weights(claim_vision),
            devices=DEVICES,
            options=VISION_OPTIONS,
            preview="sie_text.claims:preview_vision",
        ),
    ]


@hookimpl
def sie_runners() -> list[RunnerSpec]:
    """Register the forward passes."""
    return list(RUNNERS)


@hookimpl
def sie_model_folders() -> list[Path]:
    """Register the configs of the models that ship with it."""
    return [Path(__file__).parent / "models"]


@hookimpl
def sie_device_probes() -> list[DeviceProbe]:
    """Register NVIDIA and Apple GPUs."""
    return [CudaProbe(), MpsProbe()]


@hookimpl
def sie_settings() -> list[PluginSetting]:
    """Register what computes in bfloat16 on CPUs, and what is tried on GPUs."""
    return [CPU_BFLOAT16, CUDA_TRIAL]
