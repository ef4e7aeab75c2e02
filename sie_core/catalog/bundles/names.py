"""Names that bundle files and their readers share."""

FILE = "bundle.yaml"
EVERY_MODEL = "*"
"""In `models`: every model whose config names no family."""
DEFAULT_PRIORITY = 100
DERIVED = ("adapters", "engine")
"""Fields of bundles that were written for another server."""
