"""Reading JSON: strict, and large documents a piece at a time."""
