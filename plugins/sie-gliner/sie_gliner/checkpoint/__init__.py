"""What a GLiNER checkpoint holds: its config, its tensors, its tokenizers, how it splits texts into words."""
