"""One accelerator: its next runs, its retries, its health."""
