"""Large text embedders for SIE on an SGLang engine."""

__version__ = "1.0.0"
