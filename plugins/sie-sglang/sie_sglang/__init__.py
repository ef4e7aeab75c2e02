"""Large text embedders and rerankers for SIE on an SGLang engine."""

__version__ = "1.0.0"
