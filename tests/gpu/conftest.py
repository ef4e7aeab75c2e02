"""Checkpoints for the tests that need a GPU."""

from tests.pytorch.conftest import checkpoint

__all__ = ["checkpoint"]
