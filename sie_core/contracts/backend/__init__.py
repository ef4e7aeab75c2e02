"""What the API asks of a backend, and what a backend tells of itself."""
