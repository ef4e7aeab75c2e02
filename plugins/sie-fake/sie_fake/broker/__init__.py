"""A broker inside the process, for tests of what stands on a queue."""
