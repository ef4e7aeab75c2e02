"""Who pulls what: decided by each sidecar, from the heartbeats that all of them hear."""
