"""Checkpoints for the tests of sie-cpu: those of sie-pytorch."""

from tests.pytorch.conftest import checkpoint

__all__ = ["checkpoint"]
