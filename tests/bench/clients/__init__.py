"""Clients that load a server, and what they saw: the load generator, one cell, turns of several servers."""
