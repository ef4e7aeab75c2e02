"""One accelerator: what runs next on it, what is tried again, whether it is healthy."""
