"""Processes that are measured: environments, servers, children, what they use."""
