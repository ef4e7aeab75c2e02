"""The interface between the API and a backend: requests, replies and status."""
