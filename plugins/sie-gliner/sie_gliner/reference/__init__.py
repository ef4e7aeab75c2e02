"""gliner itself, in a separate environment, for `sie verify`."""
