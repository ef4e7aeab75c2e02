"""What a loaded model is: its record and state, its LoRA adapters, its failed loads."""
