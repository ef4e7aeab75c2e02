"""Threads beside the event loop, and what they share: calls, pools, leases, room for what is prepared."""
