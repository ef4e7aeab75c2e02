"""What a loaded model is: its record and state, leases, LoRA adapters, converters."""
