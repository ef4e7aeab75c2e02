"""Preparation of items by the fakes."""
