"""What the fakes make of items before a run."""
