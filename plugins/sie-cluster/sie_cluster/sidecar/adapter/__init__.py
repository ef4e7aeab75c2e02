"""What a sidecar has to do with its adapter process: the connections, and how much it is sent."""
