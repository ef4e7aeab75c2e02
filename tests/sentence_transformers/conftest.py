"""Checkpoints for the tests of the fallback: those of sie-pytorch."""

from tests.pytorch.conftest import _one_thread, checkpoint

__all__ = ["_one_thread", "checkpoint"]
