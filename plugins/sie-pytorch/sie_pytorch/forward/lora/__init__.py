"""LoRA: an adapter's files, and its factors in a forward pass."""
