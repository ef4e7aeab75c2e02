"""Outputs derived from multi-vectors: MUVERA and SMVE."""
