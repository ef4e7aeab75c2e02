"""Calls on a cluster as a whole: its pools, its capacity, and what it says of itself."""
