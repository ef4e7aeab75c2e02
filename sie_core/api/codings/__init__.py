"""Content codings: compressed bodies of requests, and of replies."""
