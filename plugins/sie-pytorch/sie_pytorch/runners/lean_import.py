"""Imports the part of transformers that drags scipy in, without scipy.

Every model class of transformers imports the losses of all of them, and those of object detection import scipy's
optimizers where scipy is installed, as it is beside sentence-transformers: 30 MB and a tenth of the time to the first
vector, for training losses that no server computes.
"""

from __future__ import annotations

import contextlib

from transformers import utils


def import_losses() -> None:
    """Import the losses once, as if scipy were not there; nothing else is told so."""
    found = utils.is_scipy_available
    utils.is_scipy_available = lambda: False
    try:
        with contextlib.suppress(ImportError):  # another version of transformers: nothing to spare
            import transformers.loss.loss_utils  # noqa: F401
    finally:
        utils.is_scipy_available = found
