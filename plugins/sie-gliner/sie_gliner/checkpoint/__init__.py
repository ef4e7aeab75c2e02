"""A GLiNER checkpoint: its config, tensors, tokenizers and word splitter."""
