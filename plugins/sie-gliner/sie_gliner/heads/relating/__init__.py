"""Relations: which entities belong together, and by what."""
