"""The gateway: the HTTP API over a queue; the models run elsewhere."""
