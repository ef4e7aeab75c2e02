"""Bundles: which workers serve which models, and the hashes by which machines of a cluster compare what they know."""
