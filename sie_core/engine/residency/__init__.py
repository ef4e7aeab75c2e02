"""Residency of models and adapters on the device: loads, evictions, rollouts."""
