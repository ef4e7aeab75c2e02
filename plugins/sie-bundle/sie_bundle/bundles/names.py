"""Names that bundle files and their readers share."""

FILE = "bundle.yaml"
EVERY_MODEL = "*"
"""Name in `models` for every model whose config names no family."""
LEFT_OUT = "none"
"""The `spec` of an override whose package is not installed."""
NAME = "[A-Za-z0-9_-]{1,64}"
"""Pattern for names of bundles."""
DEFAULT_PRIORITY = 100
"""The priority of a bundle that states none."""
DERIVED = ("adapters", "engine")
"""Fields of bundles that were written for another server."""
