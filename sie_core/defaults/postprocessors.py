"""Built-in plugin: the postprocessors, which derive one output from another."""

from __future__ import annotations

from collections.abc import Sequence

from sie_core.contracts import Postprocessor
from sie_core.hookspecs import hookimpl
from sie_core.postprocess.derived.muvera import MUVERA
from sie_core.postprocess.derived.smve import SMVE

__all__ = ["INTERFACES", "sie_postprocessors"]

INTERFACES = ("sie.postprocessor/1",)


@hookimpl
def sie_postprocessors() -> Sequence[Postprocessor]:
    """Register `muvera` and `smve`."""
    return MUVERA, SMVE
