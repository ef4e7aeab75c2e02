"""The model families of this distribution, a folder each."""
