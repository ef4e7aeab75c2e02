"""Reads the files of text encoders: dense, sparse and late-interaction ones."""
