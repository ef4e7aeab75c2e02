"""The interface of a model family, from the adapter to its outputs."""
