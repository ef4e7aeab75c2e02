"""Serves models that only sentence-transformers loads, and registers the references of `sie verify`."""

__version__ = "1.0.0"
