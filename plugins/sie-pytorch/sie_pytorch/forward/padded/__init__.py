"""Padded batches, and the runner that serves if packing is refused."""
