"""What a model family implements, from the adapter to its outputs."""
