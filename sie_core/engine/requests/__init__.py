"""A request's task, outputs, life in flight and errors."""
