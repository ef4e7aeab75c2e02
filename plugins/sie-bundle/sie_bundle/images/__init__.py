"""Images of bundles: the context a builder is given, its Containerfile, and the builders that are known."""
