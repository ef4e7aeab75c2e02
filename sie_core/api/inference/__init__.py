"""What the inference routes share: the route as a value, the one handler, headers, cancellation."""
