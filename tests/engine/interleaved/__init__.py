"""Slices, batches, splits, cancels and failures of a few requests in random order, against what must come of them."""
