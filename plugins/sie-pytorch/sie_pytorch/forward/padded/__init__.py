"""Padded batches, and the runner that serves where packing is refused."""
