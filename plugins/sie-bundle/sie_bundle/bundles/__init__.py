"""Bundles: the assignment of models to workers, and the hashes by which machines of a cluster compare their configs."""
