"""Devices, their memory, and the batches that run on them."""
