"""What programs of a cluster have to do with the broker: its queues and subjects, who may use them, large payloads."""
