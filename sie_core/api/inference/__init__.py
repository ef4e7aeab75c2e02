"""The way of every inference request: its headers, its body, the backend, its reply; one handler for all routes."""
