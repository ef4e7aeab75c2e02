"""Threads beside the event loop: one call on a thread of its own, or a pool with a queue."""
