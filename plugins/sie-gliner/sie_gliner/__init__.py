"""GLiNER checkpoints for SIE: spans of a text, found by labels that each request brings."""

__version__ = "1.0.0"
