"""Imports the training losses of transformers without scipy: no server computes them.

Every model class imports all losses, and those of object detection import scipy's optimizers if scipy is installed, as
it is with sie-sentence-transformers. That costs 37 MB, and a tenth of the time to import a model class.
"""

from __future__ import annotations

import contextlib

from transformers import utils


def import_losses() -> None:
    """Import the losses once, as if scipy were not installed; scipy stays importable for everything else."""
    found = utils.is_scipy_available
    utils.is_scipy_available = lambda: False
    try:
        with contextlib.suppress(ImportError):  # another version of transformers: nothing to spare
            import transformers.loss.loss_utils  # noqa: F401
    finally:
        utils.is_scipy_available = found
