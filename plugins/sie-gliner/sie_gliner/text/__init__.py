"""Converts items to rows: words, tokens, labels, windows. No tensor."""
