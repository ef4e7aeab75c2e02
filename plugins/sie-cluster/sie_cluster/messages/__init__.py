"""What travels: frames of work and results, errors, payloads too large for one message."""
