"""What a sidecar has to do with the queue: pulls, heartbeats, large payloads and results."""
