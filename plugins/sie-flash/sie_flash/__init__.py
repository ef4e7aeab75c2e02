"""Runners for SIE's packed text encoders that attend by variable-length CUDA kernels."""

__version__ = "1.0.0"
