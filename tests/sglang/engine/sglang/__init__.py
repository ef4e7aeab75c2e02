"""Stands in for sglang: the same command line and routes, numbers by transformers, and faults on order."""
