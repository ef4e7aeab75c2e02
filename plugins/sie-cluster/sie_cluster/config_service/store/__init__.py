"""What was written, as it is kept in a store: commits that each name the one before, and snapshots of all of it."""
