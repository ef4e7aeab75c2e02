"""A postprocessor outside the tree that takes the place of the core's MUVERA: a mean of tokens under its name."""

from sie_core.contracts import ItemOutput, Option, Postprocessor
from sie_core.hookspecs import hookimpl

INTERFACES = ("sie.postprocessor/1",)


class MeanOfTokens:
    def __init__(self, config, dims):
        self.dims = dims
        self._scale = config.get("scale", 1.0)

    def convert(self, output, input_type):
        return ItemOutput(dense=(output.multivector.mean(axis=0) * self._scale).astype("float32"))


@hookimpl
def sie_postprocessors():
    scale = Option("scale", "load", float, description="Multiplies the mean.", minimum=0)
    return [Postprocessor("muvera", "multivector", "dense", create=MeanOfTokens, parameters=(scale,))]
