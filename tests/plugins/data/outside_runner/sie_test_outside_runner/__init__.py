"""The plugin `onnx`: BERT-like encoders exported to ONNX at their load, on ONNX Runtime. It imports neither."""

import os

from sie_pytorch.forward import INTERFACE

from sie_core.contracts import RunnerSpec
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.runner/3",)


@hookimpl
def sie_runners():
    return [
        RunnerSpec(
            name="onnxruntime",
            interface=os.environ.get("ONNX_INTERFACE", INTERFACE),
            target="sie_test_outside_runner.runner:OnnxRunner",
            model_types=frozenset({"bert", "distilbert", "electra", "roberta", "xlm-roberta"}),
            devices=frozenset({"cpu"}),
            priority=int(os.environ.get("ONNX_PRIORITY", "5")),
        )
    ]
