"""Locks of bundles: wheels of ours, requirements, the solver, the file, and what installs from it."""
