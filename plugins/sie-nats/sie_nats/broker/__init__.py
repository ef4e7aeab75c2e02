"""The broker itself: a local one, and the permissions of its users."""
