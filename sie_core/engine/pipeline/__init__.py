"""The stages of one request: prepare, queue, finish, reply."""
