"""The plugin `onnx`: text encoders whose forward pass is a graph, `model.onnx`."""

from sie_text.options import ENCODER_OPTIONS
from sie_text.recipe import NotUnderstoodError, read_recipe

from sie_core.contracts import Claim, ModelFamily, NoClaim
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.family/1",)


def claims(card):
    if "model.onnx" not in card.files:
        return None
    try:
        read_recipe(card)
    except NotUnderstoodError as reason:
        return NoClaim(str(reason))
    return Claim("its forward pass is model.onnx", priority=10)


@hookimpl
def sie_model_families():
    load = "sie_test_outside_onnx.encoder:load"
    return [ModelFamily("onnx", load, claims, options=ENCODER_OPTIONS, weights=("*.onnx",))]
