"""A postprocessor whose converter cannot be made."""

from sie_core.contracts import Postprocessor
from sie_core.hookspecs import hookimpl


def create(parameters, dims):
    return parameters["what nobody gives"]


class Raises:
    INTERFACES = ("sie.postprocessor/1",)

    @staticmethod
    @hookimpl
    def sie_postprocessors():
        return [Postprocessor("postprocessor-that-raises", "dense", "sparse", create=create)]
