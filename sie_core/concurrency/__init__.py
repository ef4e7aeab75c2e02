"""Threads for work off the event loop: calls, pools, leases and bounds on prepared work."""
