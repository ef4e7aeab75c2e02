"""What the tests of sie-flash share with those of sie-pytorch: checkpoints, and the padded model's states."""

from tests.pytorch.conftest import _one_thread, checkpoint
from tests.pytorch.forward.conftest import padded

__all__ = ["_one_thread", "checkpoint", "padded"]
