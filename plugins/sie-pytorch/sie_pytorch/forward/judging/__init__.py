"""Judges half precision by the outputs of heads, and keeps the verdict for the next load."""
