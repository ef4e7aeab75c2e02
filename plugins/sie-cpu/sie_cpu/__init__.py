"""Compiled CPU kernels for SIE's text encoders."""

__version__ = "1.0.0"
