"""The calls of the clients: what each sends and waits for, and what both shells need to perform it."""
