"""Heads of classifiers: logits of each sequence, and classes made of them."""
