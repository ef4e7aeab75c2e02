"""Attacks inside every limit on a real server, one by one and all at once, beside an honest client."""
