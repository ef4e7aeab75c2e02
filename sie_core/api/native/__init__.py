"""The native routes: encode, score, extract."""
