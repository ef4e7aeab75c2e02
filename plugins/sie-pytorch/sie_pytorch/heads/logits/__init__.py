"""Heads of classifiers: logits of each sequence, and the classes derived from them."""
