"""Heads for one vector per text, or one per token."""
