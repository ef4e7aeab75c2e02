"""Which models and adapters are on the device: loads, evictions, rollouts."""
