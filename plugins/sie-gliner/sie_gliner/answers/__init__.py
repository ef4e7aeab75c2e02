"""Converts probabilities to entities and relations with their places in a text. No tensor."""
