"""Loaded models: record and state, LoRA adapters, failed loads."""
