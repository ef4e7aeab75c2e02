"""Heads of classifiers: logits of each sequence, and the classes or scores derived from them."""
