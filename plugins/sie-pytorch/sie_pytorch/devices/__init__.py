"""GPUs: their number, their free memory, their health."""
