"""What a request asks for, and what its client is told."""
