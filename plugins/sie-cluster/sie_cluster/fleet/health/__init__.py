"""What peers know of the workers of a cluster."""
