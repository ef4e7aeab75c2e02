"""Outputs of the fakes: vectors, scores, extractions."""
