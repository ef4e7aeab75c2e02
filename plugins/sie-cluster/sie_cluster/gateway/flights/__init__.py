"""Requests on their way: cut into slices, sent, looked after, and answered by what arrives."""
