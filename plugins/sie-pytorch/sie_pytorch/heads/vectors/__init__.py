"""Heads that give a vector a text, or a vector a token."""
