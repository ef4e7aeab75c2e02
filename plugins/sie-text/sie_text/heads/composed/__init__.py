"""An encoder of texts with heads: the adapter, and what its load reads."""
