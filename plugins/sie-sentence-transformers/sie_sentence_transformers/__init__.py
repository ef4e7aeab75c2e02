"""What sentence-transformers alone loads, served by it, and the references of `sie verify`."""

__version__ = "1.0.0"
