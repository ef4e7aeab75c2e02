"""The adapter process: the engine, fed by frames of its sidecar."""
