"""What was written, and where it is kept: the last write of each model in the broker's journal, with a backup."""
