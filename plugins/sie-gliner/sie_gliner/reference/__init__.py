"""gliner itself, in an environment of its own, for `sie verify`."""
