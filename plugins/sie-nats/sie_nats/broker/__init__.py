"""The broker itself: one for this machine, and what its users may do."""
