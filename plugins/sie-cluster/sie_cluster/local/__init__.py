"""A whole cluster on one machine, run by one process."""
