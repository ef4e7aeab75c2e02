"""Does a server that works for long keep its memory, its open files and its threads? `python -m tests.soak.growth`."""
