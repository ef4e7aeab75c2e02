"""Frames between a sidecar and its adapter process, over a Unix socket."""
