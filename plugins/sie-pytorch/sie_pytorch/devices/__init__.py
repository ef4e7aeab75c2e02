"""GPUs: how many there are, how much memory is free, whether they work."""
